"""What a model learns from people, and what judges and gate decide."""
