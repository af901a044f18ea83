"""Reports what a model learned from a person, and what it forgot: `python -m openclaw.progress`."""
