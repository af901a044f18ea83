"""Training of an adapter that lies at a service which rents out GPUs."""

from slime.training.rented.trainer import RentedTrainer

__all__ = ["RentedTrainer"]
