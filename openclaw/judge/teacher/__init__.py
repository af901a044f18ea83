"""A teacher that runs on an inference engine."""
