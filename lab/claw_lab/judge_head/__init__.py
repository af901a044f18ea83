"""Trains the head of the judge's sentence model on labelled lines."""
