"""Measuring the product: scripted people, the real loop, the offline loop, evaluation, benchmarks, conformance."""
