"""Adapts the head of the sentence model to one person's feedback."""
