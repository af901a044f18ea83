"""Rules between flags."""
