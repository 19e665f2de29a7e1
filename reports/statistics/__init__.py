"""Numbers in, numbers out: means, ranks, and 95 % intervals.

1. `summary`      means and deviations over seeds; the best of a column
2. `estimates`    an estimate with its interval: ratios, correlations, means
3. `crossed`      accuracy, which has problems as well as seeds
4. `pairs`        two algorithms, paired by problem and seed
5. `decisions`    several claims at once, equality, differences too small to be seen
6. `resampled`    interquartile means and the probability of improvement
7. `times`        seconds to an accuracy that some runs never reach
8. `curves`       accuracy by time of training
"""
