"""A terminal chat that shows how each turn is judged and trained: `python -m openclaw.chat`."""
