"""Learning by talking in one process: people, conversations, updates and what came of them."""
