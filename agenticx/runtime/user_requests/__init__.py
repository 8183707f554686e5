"""Requests to the user: confirmations and questions of agents, with their texts and digests."""
