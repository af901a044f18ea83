"""Makes the default model, and measures it."""
