"""The statistics of reports: means, ranks, and 95 % confidence intervals of numbers in arrays.

1. `summary`      marks for the best value and the runner-up of a table's column
2. `estimates`    an estimate with interval and test: ratios, correlations, means
3. `crossed`      mean accuracy, whose noise comes from both the seeds and the test problems
4. `blocks`       mean difference over several whole runs of one experiment
5. `pairs`        two algorithms, paired by problem and seed
6. `decisions`    multiple testing (Holm), equivalence tests, power
7. `resampled`    bootstrap: interquartile means and the probability of improvement
8. `times`        training time until a target accuracy, which some runs never reach
9. `curves`       accuracy by training time
"""
