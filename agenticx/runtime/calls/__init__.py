"""A tool call step by step: read, authorised, run in order, its result rendered."""
