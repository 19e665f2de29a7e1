"""Benchmarks RapidTrainer and the graders: `make bench` on a CPU, `make gpu` on a GPU.

This package measures costs; `rapid/cost/` predicts them for `rapid plan`. parts.yaml declares the
measurements and the tables of results, and measures.py has the functions that measure. Results are
in results/: README.md shows those on a CPU, gpu/README.md those on a GPU.
"""
