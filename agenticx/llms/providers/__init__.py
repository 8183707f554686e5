"""Providers of models: names resolved to models, keys and their checks, servers on this machine."""
