"""The rollout store: every turn, judgement, sample and weight version, in one database that many processes
open."""

from openclaw.store.rollout_store import RolloutStore
from openclaw.store.writer import StoreWriter

__all__ = ["RolloutStore", "StoreWriter"]
