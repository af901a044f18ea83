"""What is special about one client each: how it names its session, marks in its texts, its settings."""
