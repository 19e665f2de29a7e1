"""Architectures and optimizer of the embedded models: tiny models that the pipeline pre-trains."""
