"""Reports what a model learned from a person and what it retained: `python -m openclaw.progress`."""
