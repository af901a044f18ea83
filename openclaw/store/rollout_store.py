"""The store's whole surface in one class; each part is in the file named after its role."""

from __future__ import annotations

from openclaw.store.deletion import Deletion
from openclaw.store.feedback import FeedbackTable
from openclaw.store.gate_turns import GateTurnTable
from openclaw.store.judgements import JudgementTable
from openclaw.store.leases import LeaseTable
from openclaw.store.memory import MemoryTable
from openclaw.store.quarantine import QuarantineTable
from openclaw.store.requests import RequestTable
from openclaw.store.scores import ScoreTable
from openclaw.store.session_rewards import SessionRewardTable
from openclaw.store.statistics import Statistics
from openclaw.store.token_records import TokenRecordTable
from openclaw.store.trajectories import TrajectoryTable
from openclaw.store.turn_status import TurnStatusTable
from openclaw.store.turns import TurnTable
from openclaw.store.version_turns import VersionTurnTable
from openclaw.store.versions import VersionTable


class RolloutStore(
    TurnTable,
    JudgementTable,
    ScoreTable,
    FeedbackTable,
    SessionRewardTable,
    TrajectoryTable,
    MemoryTable,
    RequestTable,
    LeaseTable,
    VersionTable,
    QuarantineTable,
    GateTurnTable,
    VersionTurnTable,
    Deletion,
    Statistics,
    TurnStatusTable,
    TokenRecordTable,
):
    """Turns, sessions, judgements, samples, leases and weight versions in one database.

    Every method is synchronous, thread-safe and one short transaction, and raises StoreError. Inside
    `with store.transaction():`, and inside a function given to StoreWriter, writes join the open transaction.
    """
