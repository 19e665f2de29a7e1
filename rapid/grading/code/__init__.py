"""Grader of Python functions (MBPP+): runs them in a sandbox, compares outputs outside of it."""
