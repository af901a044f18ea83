"""Prompts in, groups of samples out: data sources, rollout functions, filters, evaluation. Imports no torch."""
