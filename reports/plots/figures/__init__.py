"""A module for each figure of the main report.

To add a figure, add a module with a function `figure(data)` that returns a `style.Figure`, most
easily by `by_h` or `panel_figure` of `reports.plots.panels`. The module's name becomes the figure's
name, and `reports/contents.yaml` gives the figure its place in report.html.
"""
