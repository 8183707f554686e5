"""Running sessions: turns, message queues, confirmations, records and the sessions in use."""
