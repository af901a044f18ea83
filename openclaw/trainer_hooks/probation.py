"""Probation: compares people's judgements of newer versions with those of the versions before.

Judged turns are grouped in blocks. The turns of the current block are compared, one by one, with those of the
previous block, by a sequential test that bounds false alarms regardless of the number of checks: the product of
e-variables of two Bernoulli streams (Turner, Ly and Grünwald 2024, "Generic E-variables for exact sequential k-sample
tests that allow for optional stopping"), stopped at 1 / alpha (Ville's inequality). It assumes independent and, under
the null hypothesis, identically distributed turns; other people with other preferences are a change too.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

from claw_base.errors import OrderError
from claw_base.run_folder import orders
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.store.versions import JudgedTurn
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.trust import Exclusion
from openclaw.types import VersionStatus, adapter_of

log = logging.getLogger("openclaw.trainer_hooks.probation")

PRIOR = 0.5
"""Prior turns of each kind assumed for each stream."""


def _complained(turn: JudgedTurn) -> bool:
    return turn.score < 0


def _was_cut(turn: JudgedTurn) -> bool:
    return turn.cut


SIGNS = {"complaints": _complained, "answers cut by their length": _was_cut}


def e_value(before: Sequence[bool], now: Sequence[bool]) -> float:
    """Returns the largest value of the test so far for the hypothesis that the second stream is true more often; 1 /
    alpha is reached with probability at most alpha if both are alike. Pairs are taken in order."""
    largest = value = 1.0
    true_before = true_now = PRIOR
    for count, (old, new) in enumerate(zip(before, now, strict=False)):
        rate_before, rate_now = true_before / (count + 2 * PRIOR), true_now / (count + 2 * PRIOR)
        if rate_now > rate_before:
            middle = (rate_before + rate_now) / 2
            value *= _chance(rate_before, old) * _chance(rate_now, new)
            value /= _chance(middle, old) * _chance(middle, new)
            largest = max(largest, value)
        true_before, true_now = true_before + old, true_now + new
    return largest


def _chance(rate: float, happened: bool) -> float:
    return rate if happened else 1 - rate


def alarm(
    before: Sequence[JudgedTurn],
    now: Sequence[JudgedTurn],
    alpha: float,
    excluded: Collection[Person] = (),
) -> str | None:
    """Returns the indicator that is worse in the current block than in the previous one; None if there is none. The
    indicators share `alpha`; feedback of `excluded` people does not count."""
    for name, is_so in SIGNS.items():
        streams = [
            [is_so(turn) for turn in part if is_so is not _complained or turn.person not in excluded]
            for part in (before, now)
        ]
        if e_value(*streams) >= len(SIGNS) / alpha:
            rates = [sum(part) / len(part) for part in streams]
            return f"{name} rose from {rates[0]:.0%} to {rates[1]:.0%}"
    return None


class Probation:
    """Monitors newer versions while people use them; remembers how many judged turns it has processed."""

    def __init__(self, store: RolloutStore, settings: HookSettings, exclusion: Exclusion | None) -> None:
        self._store, self._exclusion = store, exclusion
        self._arguments, self._run_dir = settings.probation, Path(settings.trainer.run_dir or ".")
        self._is_of_adapter = adapter_of(settings.buffer.trainer_id) is not None
        self._looked_at: int | None = None

    def watch(self) -> None:
        """Orders a rollback if newer versions are worse. Their turns are quarantined, not learned again. With
        --trust, feedback of people below its threshold is ignored."""
        # versions of an adapter have their own numbers and orders
        size, run_dir = 0 if self._is_of_adapter else self._arguments.probation_turns, self._run_dir
        if not size or not run_dir.is_dir() or orders.pinned(run_dir) is not None:
            return
        count = self._store.versions.judged_count()
        if count <= size or count == self._looked_at:
            return
        self._looked_at = count
        turns = self._store.versions.judged_turns(size + count % size)
        before, now = ([one for one in part if not one.undone] for part in (turns[:size], turns[size:]))
        trust = None if self._exclusion is None else self._exclusion.trust_now()
        excluded = frozenset() if trust is None else trust.below({turn.person for turn in turns})
        reason = alarm(before, now, self._arguments.probation_false_alarms, excluded)
        if reason is not None:
            self._order_rollback(max(turn.version for turn in before), reason)

    def _order_rollback(self, known_good: int, reason: str) -> None:
        """Orders a rollback to the newest kept version up to `known_good`, unless that is live."""
        kept = [
            one.version
            for one in self._store.versions.all()
            if one.version <= known_good
            and one.status in (VersionStatus.LIVE, VersionStatus.SUPERSEDED)
            and one.path is not None
            and Path(one.path).is_dir()
        ]
        if not kept or max(kept) == self._store.versions.live():
            return
        try:
            orders.place(self._run_dir, "rollback", max(kept), True, f"probation: {reason}")
            log.warning("probation: %s; going back to version %d", reason, max(kept))
        except OrderError as error:
            log.info("probation: %s, but %s", reason, error)
