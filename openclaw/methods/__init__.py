"""What a method is, and what methods share."""
