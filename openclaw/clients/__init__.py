"""Special treatment of each client: its session header, patterns in its texts, its settings."""
