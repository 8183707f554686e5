"""The events of a turn on their way to its consumer, and the turns below a turn."""
