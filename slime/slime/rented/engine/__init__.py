"""An engine whose model is at a service that rents out GPUs."""
