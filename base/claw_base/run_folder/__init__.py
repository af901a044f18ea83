"""Files of a run folder that runtime and trainer share: process records, version orders, usage of rented models."""
