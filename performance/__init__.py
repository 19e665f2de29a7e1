"""Measures what RapidTrainer and the graders cost: `make bench`, and on a GPU `make gpu`.

Here costs are measured; `rapid/cost/` predicts them for `rapid plan`. parts.yaml declares what is
measured and how it is shown, measures.py measures it, and results/ has the figures: README.md is
the page, gpu/README.md that of a GPU.
"""
