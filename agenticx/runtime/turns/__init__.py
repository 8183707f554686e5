"""The events of a turn on their way to its consumer, and the child turns of a turn."""
