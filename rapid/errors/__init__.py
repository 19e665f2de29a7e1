"""How a command ends: its exit status, and what its message says of an exception."""
