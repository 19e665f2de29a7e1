"""The statistics of reports: means and 95 % confidence intervals of numbers in arrays.

The main one is `crossed`: the mean accuracy, whose noise is that of seeds and of test problems.
"""
