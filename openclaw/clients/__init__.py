"""The peculiarities of each client: how it names its session, marks in its texts, its settings."""
