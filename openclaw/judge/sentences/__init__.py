"""A small model that classifies users' messages, in addition to the judge's rules."""
