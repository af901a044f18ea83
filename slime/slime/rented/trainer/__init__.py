"""Training of an adapter that lies at a service which rents out GPUs."""

from slime.rented.trainer.trainer import RentedTrainer

__all__ = ["RentedTrainer"]
