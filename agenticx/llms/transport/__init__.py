"""Requests to a provider: its HTTP client, its hosts and its errors."""
