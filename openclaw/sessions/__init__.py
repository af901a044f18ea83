"""Matches requests to conversations and to the turns that they continue."""
