"""Measuring the product: scripted people, the real loop, evaluation, conformance."""
