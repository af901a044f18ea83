"""Creates instances from any Python package with tests: small changes that break some of them."""
