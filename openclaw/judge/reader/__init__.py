"""Judges messages in which the rules find no phrase, with the language model that is served."""
