"""What a candidate must pass before it goes live, and the way back of a trainer whose candidate did not pass."""
