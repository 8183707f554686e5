"""The log of a session: its events and records, and what they say."""
