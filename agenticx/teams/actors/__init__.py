"""Actors: agents that exchange messages through a runtime, directly or by topics."""
