"""Small general helpers."""
