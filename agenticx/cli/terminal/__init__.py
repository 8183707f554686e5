"""A session at a terminal: output, the text of events, confirmations."""
