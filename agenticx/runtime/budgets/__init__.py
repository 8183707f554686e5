"""Budgets: limits on the tokens, the cost and the time of an agent and its sub-agents."""
