"""Budgets: limits on the tokens, the cost and the time of an agent with all agents below it."""
