"""Creates and measures the default model."""
