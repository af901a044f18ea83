"""Episodes of the tracks an hour, and what they leave behind."""
