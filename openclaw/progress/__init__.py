"""Reports what a person's model learned and what it kept: `python -m openclaw.progress`."""
