"""Makes the embedded base models: tiny architectures, and their optimizer."""
