"""Placeholder package for agents, tasks and their executor, which a later release adds."""
