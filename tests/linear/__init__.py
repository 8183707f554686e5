"""What the pure functions cost that read what a model, a tool, a page or a file wrote; `python -m tests.linear`."""
