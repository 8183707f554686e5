"""The command line: `agx`, the same as `agenticx`."""

from agenticx.cli.app import main

__all__ = ["main"]
