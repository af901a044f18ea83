"""Trains an adapter at a service that rents out GPUs."""

from slime.rented.trainer.trainer import RentedTrainer

__all__ = ["RentedTrainer"]
