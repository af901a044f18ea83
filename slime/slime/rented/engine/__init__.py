"""An engine whose model lies at a service that rents out GPUs."""
