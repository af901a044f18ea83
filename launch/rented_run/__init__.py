"""Starts a run on rented GPUs of any provider: flags, the driver's command, `main`."""
