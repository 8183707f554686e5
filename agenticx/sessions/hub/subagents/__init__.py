"""The sub-agents of a session: their manager, and what is stored of them."""
