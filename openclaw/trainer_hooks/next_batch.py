"""Chooses the samples of the next batch, and when it is due.

While the trainer waits, the buffer is cleaned up. Once a batch, the log reports bottlenecks: collecting, judging or
training.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openclaw.errors import StoreAway
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.types import SampleRecord, adapter_of

if TYPE_CHECKING:
    # only for types: the gateway imports this module for the backlog, and does not need the judge's rules
    from openclaw.trainer_hooks.probation import Probation
    from openclaw.trainer_hooks.trust import Exclusion

log = logging.getLogger("openclaw.trainer_hooks.next_batch")

POLL_SECONDS = 0.15
AWAY_SECONDS = 1.0
"""Seconds between attempts to reach a database server that is down."""
EXPIRE_EVERY_SECONDS = 3.0
PURGE_EVERY_SECONDS = 600.0
UPDATE_SECONDS = 600.0
"""Longest wait of a due batch with dreams for the update before it."""


class NextBatch:
    """Leases batches of one trainer; keeps track of the last cleaning and log lines."""

    def __init__(
        self, store: RolloutStore, settings: HookSettings, exclusion: Exclusion | None, probation: Probation,
        idle: Callable[[int], None],
    ) -> None:  # fmt: skip
        """
        Args:
            exclusion: None without --trust.
            idle: called repeatedly with the number of the awaited rollout; returns at once.
        """
        self._store, self._exclusion, self._idle = store, exclusion, idle
        self._buffer, self._trainer = settings.buffer, settings.trainer
        self._has_dreams = settings.dreams.is_on
        # rollout that waits for the update before it, and when the wait began
        self._waiting: tuple[int, float] | None = None
        self._cleaning = Cleaning(store, settings, probation)
        self._backlog = BacklogWatch()

    def wait(self, rollout_id: int) -> list[SampleRecord]:
        """Blocks until a batch is due, and returns it: at least one sample.

        A full batch (--rollout-batch-size, or up to --catch-up-batch-size if so many wait) is due at once; a smaller
        one --batch-timeout seconds after its oldest sample became ready. With --max-staleness, samples only from
        older weights are dropped and counted as `stale`, unless --stale-weight lets them train. The same `rollout_id`
        returns the same samples again. Meanwhile sessions idle for more than --session-ttl seconds are ended, and
        turns older than --retention-days deleted. While the database server is down, the call waits for it. With
        --trust, samples of excluded people are skipped. With dreams, the update before it must be live or rejected
        (for at most `UPDATE_SECONDS`): the number of dream steps follows from answers of that version.

        Raises:
            StoreError: the buffer cannot be used, or this rollout is trained already.
        """
        while True:
            try:
                records = self.take_if_due(rollout_id)
            except StoreAway as error:
                log.warning("the next batch waits: %s", error)
                time.sleep(AWAY_SECONDS)
                continue
            if records:
                self.log_backlog()
                return records
            self._idle(rollout_id)
            time.sleep(POLL_SECONDS)

    def take_if_due(self, rollout_id: int) -> list[SampleRecord]:
        """Returns the batch; [] while none is due."""
        self._cleaning.run()
        excluded = self._excluded()
        has_lease = self._store.samples.has_lease(rollout_id, self._buffer.trainer_id)
        if has_lease or (self.is_due(excluded) and not self._must_wait(rollout_id)):
            return self._take(rollout_id, self.batch_size(excluded), excluded)
        return []

    def _must_wait(self, rollout_id: int) -> bool:
        """Returns whether a due batch with dreams waits for the update before it. Without the wait, a trainer that is
        slower than the person would never measure a version (lab/findings/dreaming.md)."""
        if not self._has_dreams or not self._store.samples.has_update_in_flight(
            self._buffer.trainer_id, before_rollout_id=rollout_id
        ):
            return False
        if self._waiting is None or self._waiting[0] != rollout_id:
            self._waiting = rollout_id, time.monotonic()
            log.info("rollout %d is due, and waits until the update before it is live", rollout_id)
        return time.monotonic() - self._waiting[1] < UPDATE_SECONDS

    def clean(self) -> None:
        """Cleans the buffer like `take_if_due`, for a trainer that trains only adapters."""
        self._cleaning.run()

    def take_full(self, rollout_id: int) -> list[SampleRecord]:
        """Returns the batch if it is full now, else []. For loops that never wait."""
        size, excluded = self._trainer.rollout_batch_size, self._excluded()
        if self._leasable(excluded) < size:
            return []
        return self._take(rollout_id, size, excluded)

    def batch_size(self, excluded: frozenset[Person]) -> int:
        """Returns the most samples of the next batch."""
        usual, most = self._trainer.rollout_batch_size, self._buffer.catch_up_batch_size
        return max(usual, min(self._ready_count(excluded), most))

    def is_due(self, excluded: frozenset[Person]) -> bool:
        """Returns whether a batch is full, or its oldest sample has waited long enough."""
        ready = self._ready_count(excluded)
        if ready and self._buffer.max_person_share < 1:
            ready = self._leasable(excluded)
        if ready >= self._trainer.rollout_batch_size:
            return True
        samples, trainer = self._store.samples, self._buffer.trainer_id
        oldest = samples.oldest_ready_at(excluded, trainer) if ready else None
        # abs: the clock may have been set back
        return oldest is not None and abs(time.time() - oldest) >= self._buffer.batch_timeout

    def _excluded(self) -> frozenset[Person]:
        return frozenset() if self._exclusion is None else self._exclusion.excluded_people()

    def _ready_count(self, excluded: frozenset[Person]) -> int:
        return self._store.samples.ready_count(excluded, self._buffer.trainer_id)

    def _leasable(self, excluded: frozenset[Person]) -> int:
        return self._store.samples.leasable_count(
            self._trainer.rollout_batch_size,
            self._buffer.trainer_id,
            self._buffer.max_person_share,
            excluded,
        )

    def _take(self, rollout_id: int, size: int, excluded: frozenset[Person]) -> list[SampleRecord]:
        share = self._buffer.max_person_share
        return self._store.samples.lease(rollout_id, size, self._buffer.trainer_id, share, excluded)

    def log_backlog(self) -> None:
        """Logs once a batch which part is a bottleneck, and the flag that changes it."""
        ready = self._ready_count(self._excluded())
        backlog = Backlog(ready, self._store.judgements.answered_count(), self._trainer.rollout_batch_size)
        for line in self._backlog.news(backlog):
            log.warning("%s", line)


class Cleaning:
    """Ends idle sessions, deletes old turns and drops stale samples, each at its interval."""

    def __init__(self, store: RolloutStore, settings: HookSettings, probation: Probation) -> None:
        self._store, self._probation = store, probation
        self._buffer, self._trainer = settings.buffer, settings.trainer
        self._next_expiry = self._next_purge = 0.0
        self._is_of_base = adapter_of(self._buffer.trainer_id) is None
        # live version and ready samples at the last search for stale samples
        self._searched: tuple[int | None, int] | None = None

    def run(self) -> None:
        """Runs the tasks that are due."""
        if self._is_of_base:
            self._end_old()
        self._drop_stale()

    def _end_old(self) -> None:
        """Handles sessions and turns of all policies."""
        now = time.monotonic()
        if now >= self._next_expiry:
            self._store.sessions.expire(self._buffer.session_ttl)
            self._probation.watch()
            self._next_expiry = now + EXPIRE_EVERY_SECONDS
        if self._buffer.retention_days and now >= self._next_purge:
            deleted = self._store.deletion.purge(self._buffer.retention_days)
            self._next_purge = now + PURGE_EVERY_SECONDS
            if deleted["turns"]:
                log.info("retention deleted turns=%d samples=%d", deleted["turns"], deleted["samples"])

    def _drop_stale(self) -> None:
        """Drops stale samples; searches only if the live version or the ready samples have changed."""
        most = self._trainer.max_staleness
        if most is None or self._trainer.stale_weight > 0:
            return
        trainer, samples = self._buffer.trainer_id, self._store.samples
        own = None if adapter_of(trainer) is None else trainer
        live, ready = self._store.versions.live(own), samples.ready_count((), trainer)
        if (live, ready) != self._searched:
            dropped = samples.drop_stale(live - most, trainer)
            self._searched = (live, ready - dropped)
            if dropped:
                log.info("stale samples dropped samples=%d live_version=%d", dropped, live)


FULL_BATCHES = 4
"""Number of full batches of ready samples from which training counts as the bottleneck."""
REPEAT_SECONDS = 600.0


@dataclass(frozen=True)
class Backlog:
    """Current counts: `ready` samples to train, `answered` turns without a judgement, `batch` samples a step."""

    ready: int
    answered: int
    batch: int

    def advice(self) -> dict[str, str]:
        """Returns the bottlenecks, each with the flag to change; {} if there are none."""
        advice = {}
        if self.ready >= FULL_BATCHES * self.batch:
            advice["trainer"] = (
                f"training falls behind: {self.ready} samples are ready, {self.ready // self.batch} batches. A larger "
                "--rollout-batch-size or --catch-up-batch-size trains more of them a step; more training GPUs "
                "(ACTOR_GPUS), a larger --max-tokens-per-gpu or LoRA make a step faster; --max-staleness drops what is "
                "too old"
            )
        if self.answered >= FULL_BATCHES * self.batch:
            advice["judge"] = (
                f"judging falls behind: {self.answered} answered turns wait. More --num-judge-workers (at once, "
                "without a restart: PUT /admin/judges) or --judge-concurrency, more judge GPUs (PRM_GPUS), or fewer "
                "votes (--prm-m)"
            )
        return advice


class BacklogWatch:
    """Logs new conditions: each kind when it begins, then every `REPEAT_SECONDS` while it lasts."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}

    def news(self, backlog: Backlog, now: float | None = None) -> list[str]:
        """Returns the lines to log. `now`: seconds of a monotonic clock."""
        now = time.monotonic() if now is None else now
        advice = backlog.advice()
        self._logged_at = {kind: at for kind, at in self._logged_at.items() if kind in advice}
        due = [kind for kind in advice if now - self._logged_at.get(kind, float("-inf")) >= REPEAT_SECONDS]
        self._logged_at |= dict.fromkeys(due, now)
        return [advice[kind] for kind in due]
