"""Repeated calls of a turn: loop detection, waits before polling, and the results read for both."""
