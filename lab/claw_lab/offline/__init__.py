"""Learning by talking in one process: people, conversations, updates and their results."""
