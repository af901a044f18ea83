"""Lets the served language model judge messages in which the rules find no phrase."""
