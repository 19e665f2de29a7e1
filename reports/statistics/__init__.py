"""Numbers in, numbers out: means, ranks, and 95 % intervals.

1. `summary`      means and deviations over seeds; the best of a column
2. `estimates`    an estimate with its interval: ratios, correlations, means
3. `bootstrap`    intervals of accuracy, which has problems as well as seeds
4. `pairs`        two algorithms, paired by problem and seed
5. `curves`       accuracy by time of training
"""
