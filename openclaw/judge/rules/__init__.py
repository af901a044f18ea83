"""The judge without a model."""
