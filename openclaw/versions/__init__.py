"""Command line and library for weight versions: their states, and orders to roll back, pin and unpin."""
