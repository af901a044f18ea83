"""Converts prompts to groups of samples: data sources, rollout functions, filters, evaluation. Independent of
torch."""
