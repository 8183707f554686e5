"""Bytes from and to a provider: HTTP/1.1, server-sent events, JSON lines, errors."""
