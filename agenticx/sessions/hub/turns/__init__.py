"""The turns of a session while they run, or wait to go on."""
