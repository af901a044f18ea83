"""Starts a run on rented GPUs of any provider: flags, driver command, `main`."""
