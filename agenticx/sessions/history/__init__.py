"""Conversations derived from the log: transcript, forks, rebuilt and interrupted turns, exports."""
