"""The flags, one typed group a file."""
