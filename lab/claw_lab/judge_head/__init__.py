"""Makes the head of the judge's sentence model from labelled lines."""
