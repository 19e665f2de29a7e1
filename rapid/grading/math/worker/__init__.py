"""The math grader's process. It is started by path and imports nothing of `rapid`."""
