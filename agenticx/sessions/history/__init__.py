"""Transcript, fork and export of a session, and what a rewind returns to, read from its log."""
