"""Command line for forgetting a person, or one of a person's preferences."""
