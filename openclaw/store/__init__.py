"""The rollout store: every turn, judgement, sample and weight version, in one database that many processes
open."""

from openclaw.store.database import StoreWriter
from openclaw.store.rollout_store import RolloutStore

__all__ = ["RolloutStore", "StoreWriter"]
