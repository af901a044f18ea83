"""Converts prompts to groups of samples: data sources, rollout functions, filters, evaluation. Does not import
torch."""
