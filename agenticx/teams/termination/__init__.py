"""Termination conditions: rules for the end of a team's run."""
