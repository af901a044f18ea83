"""Selects the requests of the next step: admission, fair sharing of prompt tokens, retraction if the KV store
is full.

Low-priority requests (such as dreams) take at most half of the slots and are retracted first. While other
requests are served, they are part of only every third step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from slime.engines.embedded.kv_cache import KVStore, length_class, reserved
from slime.engines.embedded.prefixes import Prefixes
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.slab import PrefillCache, Slab

MOST_RESTARTS = 3
STEPS_OF_OTHERS = 3
"""While other requests are served, low-priority requests are part of one step in so many."""


@dataclass(frozen=True)
class SchedulerLimits:
    """Limits of the scheduler.

    Attributes:
        running: concurrent requests.
        prefill: prompt tokens per step.
        total: tokens in the KV store.
        kept: bytes of cached keys and values of finished requests; 0 disables the cache.
    """

    running: int
    prefill: int
    total: int
    kept: int = 0


@dataclass(frozen=True)
class Chunk:
    """Positions [first, last) of a sequence that is being prefilled."""

    sequence: Sequence
    first: int
    last: int

    @property
    def completes(self) -> bool:
        return self.last == self.sequence.length


class Scheduler:
    """Waiting, prefilling and decoding sequences of one engine. Used by the engine thread only."""

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self.store = KVStore()
        self.prefixes = Prefixes(limits.kept)
        self._weights = 0
        self._replaced: dict[str | None, int] = {}
        self.is_ready: Callable[[str], bool] = lambda adapter: True
        self.waiting: deque[Sequence] = deque()
        self._passed: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self._steps = 0
        self._omits = False

    @property
    def decoding(self) -> list[Sequence]:
        return [row for slab in self.store.slabs.values() for row in slab.rows]

    @property
    def slabs(self) -> list[Slab[Sequence]]:
        """Returns the slabs whose rows are decoded in the planned step."""
        return [
            slab
            for (_, is_low_priority), slab in self.store.slabs.items()
            if not (is_low_priority and self._omits)
        ]

    @property
    def active(self) -> list[Sequence]:
        return [*self.prefilling, *self.decoding]

    @property
    def queued(self) -> list[Sequence]:
        """Returns all waiting sequences, including those being admitted."""
        return [*self._passed, *self.waiting]

    @property
    def waits_for_adapters(self) -> bool:
        """Returns whether nothing runs after a step although requests wait."""
        return bool(self.waiting) and not self.prefilling and not self.store.slabs

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.prefilling or self.store.slabs)

    @property
    def tokens_reserved(self) -> int:
        return sum(reserved(s) for s in self.active)

    def add(self, sequence: Sequence) -> None:
        self.waiting.insert(
            len(self.waiting) if sequence.is_low_priority else self._first_low_priority(), sequence
        )

    def plan(self) -> list[Chunk]:
        """Plans a step: makes room for decoding rows, admits requests, and distributes the prompt tokens."""
        self._make_room()
        self._admit()
        self._steps += 1
        self._omits = self._steps % STEPS_OF_OTHERS != 0 and any(
            not one.is_low_priority for one in self.active
        )
        now = [one for one in self.prefilling if not (one.is_low_priority and self._omits)]
        return share(now, self.limits.prefill)

    def start_decoding(self, sequence: Sequence) -> None:
        """Moves the keys and values of a prefilled prompt into a slab."""
        self.prefilling.remove(sequence)
        if sequence.prefill is not None:
            self.store.insert(sequence, sequence.prefill.views(sequence.cached))
        sequence.prefill = None
        if sequence.images is not None:
            sequence.images.features = None

    def drop(self, sequence: Sequence, wipe: bool = False) -> None:
        """Removes a sequence and its storage; `wipe` also zeroes values that may not be finite."""
        if sequence.slab is not None:
            self.store.remove(sequence, wipe)
        elif sequence in self.prefilling:
            self.prefilling.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.prefill = None
        sequence.cached = 0

    def retract(self, sequence: Sequence) -> None:
        """Returns an admitted sequence to the front of the queue; its keys and values are recomputed later."""
        self.drop(sequence)
        sequence.retractions += 1
        self.waiting.insert(self._first_low_priority() if sequence.is_low_priority else 0, sequence)

    def retract_all(self) -> None:
        for sequence in sorted(self.active, key=lambda s: s.created, reverse=True):
            self.retract(sequence)

    def keep(self, sequence: Sequence) -> None:
        """Caches the keys and values of an ended sequence for prompts with the same prefix.

        For a scored request, only the tokens before the scored ones. Parts computed by older weights are
        omitted.
        """
        if not self.limits.kept or not self._is_of_live_weights(sequence) or sequence.images is not None:
            return
        if sequence.slab is not None:
            layers = sequence.slab.row_views(sequence.row)
            self.prefixes.keep(sequence.tokens(0, sequence.cached), layers, sequence.adapter)
        elif sequence.prefill is not None and sequence.logprob_start > 0:
            count = min(sequence.cached, sequence.logprob_start)
            self.prefixes.keep(sequence.tokens(0, count), sequence.prefill.views(count), sequence.adapter)

    def restart_prefills(self, adapter: str | None = None) -> None:
        """Drops keys and values of replaced weights, of the base model or of one adapter, and restarts
        partial prefills.

        Each prompt restarts at most MOST_RESTARTS times, so that none starves.
        """
        self._weights += 1
        self._replaced[adapter] = self._weights
        if adapter is None:
            self.prefixes.clear()
        else:
            self.prefixes.drop(adapter)
        for sequence in self.prefilling:
            if adapter is not None and sequence.adapter != adapter:
                continue
            if sequence.cached and not sequence.output_ids and sequence.restarts < MOST_RESTARTS:
                sequence.restart_prompt()
                sequence.weights = self._weights

    def _is_of_live_weights(self, sequence: Sequence) -> bool:
        """Returns whether neither the base model nor the sequence's adapter was replaced since it began."""
        return sequence.weights >= max(self._replaced.get(None, 0), self._replaced.get(sequence.adapter, 0))

    def find(self, rid: str | None) -> list[Sequence]:
        """Returns the sequences with this id; None returns all."""
        everyone: Iterable[Sequence] = (*self.waiting, *self.active)
        return [s for s in everyone if rid is None or s.rid == rid]

    def _make_room(self) -> None:
        for sequence in self.decoding:
            self.store.make_room(sequence)
        active = self.active
        total = self.tokens_reserved
        while total > self.limits.total and len(active) > 1:
            youngest = max(active, key=lambda s: (s.is_low_priority, s.created))
            active.remove(youngest)
            total -= reserved(youngest)
            self.retract(youngest)
        if not self.waiting or self.waiting[0].is_low_priority:
            return
        total += reserved(self.waiting[0])
        for sequence in sorted(
            filter(lambda s: s.is_low_priority, active), key=lambda s: s.created, reverse=True
        ):
            if total <= self.limits.total and len(active) < self.limits.running:
                break
            active.remove(sequence)
            total -= reserved(sequence)
            self.retract(sequence)

    def _admit(self) -> None:
        """Admits requests in order of arrival, low-priority ones last, skipping those whose adapter is not in
        memory."""
        running, total = len(self.prefilling) + self.store.rows, self.tokens_reserved
        places = max(1, self.limits.running // 2) - sum(one.is_low_priority for one in self.active)
        while self.waiting and running < self.limits.running:
            sequence = self.waiting[0]
            need = length_class(sequence.length + 1)
            if (running and total + need > self.limits.total) or (sequence.is_low_priority and places <= 0):
                break
            self.waiting.popleft()
            if sequence.adapter is not None and not self.is_ready(sequence.adapter):
                self._passed.append(sequence)
                continue
            self._begin(sequence)
            self.prefilling.append(sequence)
            running, total, places = running + 1, total + need, places - sequence.is_low_priority
        self.waiting.extendleft(reversed(self._passed))
        self._passed.clear()

    def _first_low_priority(self) -> int:
        """Returns the number of waiting requests before the first one of low priority."""
        return next((i for i, one in enumerate(self.waiting) if one.is_low_priority), len(self.waiting))

    def _begin(self, sequence: Sequence) -> None:
        """Allocates an admitted sequence's cache and copies a cached prefix.

        The last token is always computed, and so is the one directly before a scored token.
        """
        sequence.prefill = PrefillCache(sequence.length)
        sequence.weights = self._weights
        if self.limits.kept and sequence.images is None:
            most = min(sequence.length, sequence.next_scored) - 1
            sequence.cached = self.prefixes.copy_into(
                sequence.prefill, sequence.tokens(0, most), sequence.adapter
            )
            sequence.reused = max(sequence.reused, min(sequence.cached, len(sequence.prompt_ids)))


DEEP_PREFIX = 2048
"""A prompt token that attends to this many others counts twice: attention then costs about as much as the
rest of a small model. This bounds the duration of a step for any prompt length."""


def share(prefilling: list[Sequence], budget: int) -> list[Chunk]:
    """Divides `budget` prompt tokens: half to the oldest prompt, the rest to the shortest remainders.

    A short prompt can thus overtake a long one, and no prompt starves.

    Args:
        prefilling: sequences in order of admission.
    """
    if not prefilling:
        return []
    oldest, *others = prefilling
    half = min(_cost(oldest), budget / 2)
    free = budget - half
    chunks = []
    for sequence in sorted(others, key=_left):
        if (chunk := _chunk(sequence, free)) is not None:
            chunks.append(chunk)
            free -= (chunk.last - chunk.first) * _price(sequence)
    first = _chunk(oldest, half + free) or Chunk(oldest, oldest.cached, oldest.cached + 1)
    return [first, *chunks]


def _left(sequence: Sequence) -> int:
    return sequence.length - sequence.cached


def _price(sequence: Sequence) -> float:
    return 1 + sequence.cached / DEEP_PREFIX


def _cost(sequence: Sequence) -> float:
    return _left(sequence) * _price(sequence)


def _chunk(sequence: Sequence, budget: float) -> Chunk | None:
    """Returns the next chunk within `budget`, if any."""
    count = min(_left(sequence), int(budget / _price(sequence)))
    return Chunk(sequence, sequence.cached, sequence.cached + count) if count > 0 else None
