"""A desktop for each episode: a display of its own, and programs in boxes on it."""
