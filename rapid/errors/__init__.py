"""Exit statuses of commands, and messages for the exceptions that end them."""
