"""Asynchronous access of the gateway to the rollout store."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from openclaw.clients.program_text import RepeatedTexts
from openclaw.common.messages import Picture
from openclaw.errors import StoreAway, StoreError
from openclaw.gateway.running import InFlight, UsesInProgress
from openclaw.sessions.transcript import Parent, Transcript, same_answer
from openclaw.store import RolloutStore, StoreWriter
from openclaw.store.judgements import TurnReward
from openclaw.store.rights import Asker
from openclaw.types import DEFAULT_TRAINER, Feedback, Message, NewTurn, Turn, TurnState

T = TypeVar("T")
log = logging.getLogger(__name__)

REMEMBERED_DELETIONS = 10_000
"""Number of latest deletions whose answers in progress are not stored."""
RECENT_TOKENS = 400_000
"""Most prompt tokens of the turns kept in memory."""
FAILED_SECONDS = 10.0
"""Time after a failed write in which requests that must be stored are rejected. Then the next one is tried."""

AWAY_SECONDS = 30.0
"""Longest outage of a database server, for example a restart, during which requests wait instead of failing."""
LONGEST_PAUSE_SECONDS = 0.5
"""Longest pause between two attempts to reach the database server."""


class RecentTurns:
    """Cache of the last turn of recent conversations, which the next turn continues.

    It saves reading the whole history of a long conversation from the store. Not thread-safe, but other threads may
    read `by_id`.
    """

    def __init__(self, most: int = RECENT_TOKENS) -> None:
        self.by_id: dict[str, Turn] = {}
        self._most = most
        self._tokens = 0

    def keep(self, turn: Turn) -> None:
        """Adds a turn and removes its parent."""
        if turn.parent_id is not None:
            self._drop(turn.parent_id)
        self._drop(turn.id)
        self.by_id[turn.id] = turn
        self._tokens += len(turn.prompt_ids)
        while self._tokens > self._most:
            self._drop(next(iter(self.by_id)))

    def clear(self) -> None:
        self.by_id.clear()
        self._tokens = 0

    def _drop(self, turn_id: str) -> None:
        turn = self.by_id.pop(turn_id, None)
        self._tokens -= 0 if turn is None else len(turn.prompt_ids)


class Recorder:
    """Reads and writes the store without blocking the event loop.

    Args:
        session_ttl: largest age in seconds of a parent turn if the client names no session.

    Attributes:
        forgetting: lock held while a person's rows are deleted, so that no deletion runs twice at the same time.
        uses: uses of people's words in progress, for which deletions wait.
    """

    def __init__(self, store: RolloutStore, session_ttl: float) -> None:
        self.store = store
        self.forgetting = asyncio.Lock()
        self.in_flight = InFlight()
        self.uses = UsesInProgress()
        self._writer = StoreWriter(store.database)
        self._session_ttl = session_ttl
        self._repeated = RepeatedTexts()
        self.recent = RecentTurns()
        self._background: set[asyncio.Task[None]] = set()
        self._deleted: OrderedDict[tuple[str, str | None], float] = OrderedDict()
        self._failure: tuple[float, str] | None = None

    def close(self) -> None:
        """Commits queued writes, and closes the store."""
        self._writer.close()
        self.store.close()

    async def find_parent(
        self, messages: list[Message], transcript: Transcript, scope: str | None, asker: Asker
    ) -> Parent | None:
        """Returns the stored turn that a request continues; None if there is none. Raises StoreError.

        It is the turn whose messages and answer are the longest prefix of the history. If there is none, because the
        client has rewritten the history (for example summarized old messages), it is the last turn of the named
        session, provided that its answer is the last one in the history. Turns that the asker may not access are
        ignored.
        """
        if not transcript.answers:
            return None
        return await _retrying(
            lambda: asyncio.to_thread(self._find_parent, messages, transcript, scope, asker)
        )

    def _find_parent(
        self, messages: list[Message], transcript: Transcript, scope: str | None, asker: Asker
    ) -> Parent | None:
        digests = [digest for digest, _ in transcript.answers]
        since = 0.0 if scope is not None else time.time() - self._session_ttl
        turn = self.store.turns.find_by_digest(digests, scope, since, asker, self.recent.by_id)
        if turn is not None:
            return Parent(turn, dict(transcript.answers)[turn.transcript_digest])
        last = self.store.turns.last_main(scope, asker) if scope is not None else None
        start = transcript.answers[0][1]
        if last is None:
            return None
        return Parent(last, start) if same_answer(last.response_message, messages[start - 1]) else None

    async def remembered(self, person: str, asker: Asker, trainer: str = DEFAULT_TRAINER) -> list[str]:
        """Returns the preferences to add to a person's prompts, oldest first; see `MemoryTable.remembered`. Raises
        StoreError."""
        memory = self.store.memory
        remembered = await _retrying(
            lambda: asyncio.to_thread(memory.remembered, person, asker=asker, trainer=trainer)
        )
        return [wish.text for wish in remembered]

    async def forget(self, wish_id: int, asker: Asker, person: str | None = None) -> bool:
        """Deletes a preference, see `MemoryTable.forget`, and ends canary tests. Returns False if there is none.
        Raises StoreError.

        Args:
            person: required owner of the preference; ignored for an asker with a name, who can delete only their own.
        """
        owner = person if asker.person is None else asker.person
        is_deleted = await self._write(lambda: self.store.memory.forget(wish_id, owner, asker))
        if is_deleted:
            await self.uses.end_in_background()
        return is_deleted

    async def record(
        self, turn: NewTurn, began: float, pictures: Mapping[str, Picture] | None = None
    ) -> None:
        """Stores a turn; durable on return. An abandoned attempt is not stored if another one continues, nor is an
        answer if its session or person was deleted meanwhile. Raises StoreError.

        Args:
            began: time of the request (monotonic clock).
            pictures: those in its prompt, see `TurnTable.record`.
        """
        if turn.state is TurnState.ABORTED and self.in_flight.continues(turn.id):
            return
        owners = (("session", turn.session_id), ("person", turn.person))
        if any(began <= self._deleted.get(owner, -math.inf) for owner in owners):
            return
        try:
            stored = await self._write(lambda: self._record(turn, pictures))
            if stored is not None:
                self.recent.keep(stored)
        except StoreError as error:
            self._failure = (time.monotonic(), error.remedy or "see the gateway's log for the reason")
            raise
        self._failure = None

    async def pictures(self, names: Collection[str]) -> dict[str, Picture]:
        """Returns the stored ones of these pictures. Raises StoreError."""
        return await _retrying(lambda: asyncio.to_thread(self.store.pictures.named, names))

    def _record(self, turn: NewTurn, pictures: Mapping[str, Picture] | None) -> Turn | None:
        """Returns None if the turn that it continues was deleted meanwhile, perhaps through another worker."""
        turns = self.store.turns
        is_left = turn.parent_id is not None and not turns.is_stored(turn.parent_id)
        return None if is_left else turns.record(turn, pictures)

    @property
    def failure(self) -> str | None:
        """Returns what to do if a write failed in the last FAILED_SECONDS, without the address of the store; else
        None."""
        if self._failure is None or time.monotonic() - self._failure[0] > FAILED_SECONDS:
            return None
        return self._failure[1]

    def answer_soon(self, parent: Turn, next_state: list[Message]) -> None:
        """Stores the next state of a turn in the background, so that the turn can be judged.

        Texts that occur in several sessions are templates of programs and are removed; an empty next state is not
        stored.
        """
        next_state = self._repeated.without(parent.key_name, parent.session_id, next_state)
        if not next_state:
            return

        def write() -> None:
            self.store.sessions.touch(parent.session_id)
            self.store.turns.answer(parent.id, next_state)

        task = asyncio.get_running_loop().create_task(self._logging_errors(write))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def end_session(self, session_id: str, asker: Asker) -> int:
        """Ends a session, see `SessionTable.end`. Returns the number of turns that expire. Raises StoreError."""
        return await self._write(lambda: self.store.sessions.end(session_id, asker))

    async def delete_session(self, session_id: str) -> tuple[dict[str, int], int]:
        """Deletes a session with all derived data, and waits for the uses of its text.

        Returns:
            The number of deleted rows by kind, and of requests that are still being answered after
            `openclaw.gateway.running.DELETION_WAIT_SECONDS`. Their answers are not stored.

        Raises:
            StoreError: the database failed.
        """
        with self._deleting("session", session_id):
            deleted = await self._write(lambda: self.store.deletion.delete_session(session_id))
        return deleted, await self.uses.end_of_session(session_id)

    async def delete_person(
        self, person: str, adapter: str | None = None
    ) -> tuple[dict[str, int], list[int]]:
        """Deletes all sessions and turns of a person with all derived data.

        Returns:
            The number of deleted rows by kind, and the rollouts whose files may contain text of the person, see
            `InfluenceTable.rollouts_of`.

        Raises:
            StoreError: the database failed.
        """

        def write() -> tuple[dict[str, int], list[int]]:
            rollouts = self.store.influence.rollouts_of(person, adapter)
            return self.store.deletion.delete_person(person), rollouts

        with self._deleting("person", person):
            return await self._write(write)

    @contextmanager
    def _deleting(self, kind: str, name: str) -> Iterator[None]:
        """Discards answers to requests that arrive before the end of the context: their prompts may contain deleted
        text."""
        self.recent.clear()
        self._deleted[kind, name] = math.inf
        try:
            yield
        finally:
            self.recent.clear()
            self._deleted[kind, name] = time.monotonic()
            self._deleted.move_to_end((kind, name))
            if len(self._deleted) > REMEMBERED_DELETIONS:
                self._deleted.popitem(last=False)

    async def feedback(
        self,
        completion_id: str | None,
        session_id: str | None,
        score: float | None,
        text: str,
        asker: Asker,
    ) -> Feedback | None:
        """Stores feedback on a turn, see `FeedbackTable.record`. Returns None if the asker can access no such turn.
        Raises StoreError."""
        return await self._writer.submit(
            lambda: self.store.feedback.record(
                completion_id=completion_id, session_id=session_id, score=score, text=text, asker=asker
            )
        )

    async def reward_session(
        self, session_id: str, score: float, text: str, discount: float, asker: Asker
    ) -> list[TurnReward]:
        """Distributes a reward over the turns of a session, see `FeedbackTable.reward_session`. Raises StoreError."""
        return await self._writer.submit(
            lambda: self.store.feedback.reward_session(session_id, score, text, discount, asker)
        )

    async def counts(self) -> dict[str, dict[str, int]]:
        """Returns the number of turns and samples by state, and of drops by reason; see `StatusTable.counts`."""
        return await asyncio.to_thread(self.store.status.counts)

    async def live_version(self) -> int:
        """Returns the live version of the base model; 0 if there is none."""
        return await asyncio.to_thread(self.store.versions.live)

    async def _write(self, function: Callable[[], T]) -> T:
        return await _retrying(lambda: self._writer.submit(function))

    async def _logging_errors(self, write: Any) -> None:
        try:
            await self._write(write)
        except StoreError as error:
            log.error("cannot store the next state of a turn: %s", error)


async def _retrying(attempt: Callable[[], Awaitable[T]]) -> T:
    """Calls `attempt` until the database server is reachable, for at most `AWAY_SECONDS`. Raises the error of the last
    attempt."""
    deadline, pause = time.monotonic() + AWAY_SECONDS, 0.05
    while True:
        try:
            return await attempt()
        except StoreAway:
            if time.monotonic() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
