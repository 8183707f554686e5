"""A tool call step by step: read, authorized, run in order, its result rendered."""
