"""Learning from conversations in one process: people, conversations, updates and measurements."""
