"""Confirm gates: the protocol, and the gates of functions, terminals, servers and policies."""
