"""The rollout store: all turns, judgements, samples and weight versions, in one database that many processes open."""

from openclaw.store.database import StoreWriter
from openclaw.store.rollout_store import RolloutStore

__all__ = ["RolloutStore", "StoreWriter"]
