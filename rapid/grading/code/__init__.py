"""MBPP+ and other Python functions: run in a sandbox, compared outside of it."""
