"""How a run on rented GPUs is started, whoever rents them out: flags, the driver's command, `main`."""
