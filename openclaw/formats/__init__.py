"""Converts messages to token ids and sampled ids to messages, in each model family's format."""
