"""The math grader's worker: a program that is started by path and imports nothing from `rapid`."""
