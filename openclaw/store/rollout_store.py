"""The rollout store: one object that groups the tables of the database."""

from __future__ import annotations

from pathlib import Path

from openclaw.store.database import Database
from openclaw.store.deletion import Deletion
from openclaw.store.dreams import DreamTable
from openclaw.store.gate_turns import GateTurnTable
from openclaw.store.influence import InfluenceTable
from openclaw.store.judgements import FeedbackTable, JudgementTable
from openclaw.store.memory import MemoryTable
from openclaw.store.people import PeopleTable
from openclaw.store.pictures import PictureTable
from openclaw.store.policies import PolicyTable
from openclaw.store.quarantine import QuarantineTable
from openclaw.store.samples import SampleTable
from openclaw.store.status import StatusTable
from openclaw.store.token_records import TokenRecordTable
from openclaw.store.turns import SessionTable, TurnTable
from openclaw.store.versions import VersionTable


class RolloutStore:
    """Turns, sessions, judgements, samples, leases and weight versions in one database.

    The methods of the tables are synchronous and thread-safe. Each runs in one short transaction, and raises
    StoreError if the database fails. Inside `with store.database.transaction():`, and inside a function passed to
    StoreWriter, they join the open transaction.
    """

    def __init__(self, location: str | Path, durable: bool = False) -> None:
        """Opens or creates the database; for the arguments see `Database`. Raises StoreError."""
        self.database = Database(location, durable)
        self.turns = TurnTable(self.database)
        self.pictures = PictureTable(self.database)
        self.sessions = SessionTable(self.database)
        self.judgements = JudgementTable(self.database)
        self.feedback = FeedbackTable(self.database)
        self.samples = SampleTable(self.database)
        self.quarantine = QuarantineTable(self.database)
        self.versions = VersionTable(self.database)
        self.policies = PolicyTable(self.database)
        self.people = PeopleTable(self.database)
        self.memory = MemoryTable(self.database)
        self.status = StatusTable(self.database)
        self.token_records = TokenRecordTable(self.database)
        self.gate_turns = GateTurnTable(self.database)
        self.dreams = DreamTable(self.database)
        self.influence = InfluenceTable(self.database)
        self.deletion = Deletion(self.database)

    def close(self) -> None:
        """Closes all connections. The store cannot be used afterwards."""
        self.database.close()
