"""Makes instances of any Python package that has tests: small changes that break some of them."""
