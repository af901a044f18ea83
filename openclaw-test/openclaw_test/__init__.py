"""Measures the product: scripted users, the real loop, evaluation, conformance."""
