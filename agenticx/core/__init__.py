"""Agents, tasks and their executor; they come in a later release."""
