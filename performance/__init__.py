"""Benchmarks RapidTrainer and the graders: `make bench` on a CPU, `make gpu` on a GPU.

This package measures costs; `rapid/cost/` predicts them for `rapid plan`. parts.yaml declares the
measurements and the tables that show them, and measures.py has the code that measures. Results are
in results/: README.md is the page for the CPU, gpu/README.md the page for a GPU.
"""
