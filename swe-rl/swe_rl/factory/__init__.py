"""Creates instances from any Python package with tests, by small changes that make some tests fail."""
