"""A module for each figure of the report."""
