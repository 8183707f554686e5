"""Access to sessions from a command: in this process, or at the server that owns them."""
