"""State that all workers of one database share: the token of the server, keys of providers, and other values."""
