"""A module for each figure of the main report; `reports.plots` says how to add one."""
