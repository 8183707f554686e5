"""The cost of the pure functions that read output of models, tools, pages and files."""
