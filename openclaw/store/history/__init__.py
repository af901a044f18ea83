"""Conversation histories of other programs: detects their formats, parses and stores them."""
