"""The store protocol and its implementations: memory and SQLite."""
