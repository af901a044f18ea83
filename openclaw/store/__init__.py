"""The rollout store: turns, judgements, samples and weight versions in one database shared by all processes."""

from openclaw.store.database import StoreWriter
from openclaw.store.rollout_store import RolloutStore

__all__ = ["RolloutStore", "StoreWriter"]
