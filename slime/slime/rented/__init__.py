"""A model at a service that rents out its GPUs: what such a service must do, its engine and its trainer."""
