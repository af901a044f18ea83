"""Probation: what people say of newer versions, beside what they said of the versions before.

Judged turns are taken in blocks. The turns of the present block are compared, one by one as they come, with those of the
block before, by a sequential test whose false alarms are bounded however often one looks: the product of e-variables
of two Bernoulli streams (Turner, Ly and Grünwald 2024, "Generic E-variables for exact sequential k-sample tests that
allow for optional stopping"), stopped at 1 / alpha (Ville's inequality). It assumes that turns are independent and, where
nothing changed, alike; other people with other wishes are a change too.
"""

from __future__ import annotations

import argparse
import functools
import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from claw_base.errors import OrderError
from claw_base.run_folder import orders
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.store.versions import JudgedTurn
from openclaw.trainer_hooks import trust
from openclaw.types import VersionStatus

log = logging.getLogger("openclaw.trainer_hooks.probation")

PRIOR = 0.5
"""Turns of each kind that each stream is taken to have begun with."""


def _complained(turn: JudgedTurn) -> bool:
    return turn.score < 0


def _was_cut(turn: JudgedTurn) -> bool:
    return turn.cut


SIGNS = {"complaints": _complained, "answers cut by their length": _was_cut}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the probation, once."""
    if parser.get_default("probation_turns") is not None:
        return
    group = parser.add_argument_group("probation", "What newer versions must keep up with while people talk.")
    group.add_argument(
        "--probation-turns",
        type=int,
        default=50,
        help="judged turns in which newer versions are watched; 0: none",
    )
    group.add_argument(
        "--probation-false-alarms", type=float, default=0.01, help="chance of a false alarm in so many turns"
    )


def e_value(before: Sequence[bool], now: Sequence[bool]) -> float:
    """The largest value of the test so far that the second stream is true more often than the first; at most
    1 / alpha is reached with probability alpha where both are alike. Pairs are taken in order."""
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
    apart: Collection[Person] = (),
) -> str | None:
    """What is worse in the present block than in the one before; None while nothing is. `alpha` is shared among the
    signs; `apart` are people whose words do not count."""
    for name, is_so in SIGNS.items():
        heard = [
            [is_so(turn) for turn in part if is_so is not _complained or turn.person not in apart]
            for part in (before, now)
        ]
        if e_value(*heard) >= len(SIGNS) / alpha:
            rates = [sum(part) / len(part) for part in heard]
            return f"{name} rose from {rates[0]:.0%} to {rates[1]:.0%}"
    return None


@functools.lru_cache(maxsize=4)
def _seen(store: RolloutStore) -> dict[str, int]:
    """How many judged turns were looked at last."""
    return {}


def watch(args: Any, store: RolloutStore) -> None:
    """Orders the way back where newer versions are worse. Their turns are quarantined, not learned again. With --trust,
    nothing that people say who are below its bar counts as a complaint or as none."""
    size, run_dir = getattr(args, "probation_turns", 0), Path(getattr(args, "run_dir", "") or ".")
    if not size or not run_dir.is_dir() or orders.pinned(run_dir) is not None:
        return
    count = store.versions.judged_count()
    if count <= size or count == _seen(store).get("judged"):
        return
    _seen(store)["judged"] = count
    turns = store.versions.judged_turns(size + count % size)
    before, now = ([one for one in part if not one.undone] for part in (turns[:size], turns[size:]))
    reason = alarm(before, now, args.probation_false_alarms, _not_trusted(args, store, turns))
    if reason is None:
        return
    known_good = max(turn.version for turn in before)
    kept = [
        one.version
        for one in store.versions.all()
        if one.version <= known_good
        and one.status in (VersionStatus.LIVE, VersionStatus.SUPERSEDED)
        and one.path is not None
        and Path(one.path).is_dir()
    ]
    if not kept or max(kept) == store.versions.live():
        return
    try:
        orders.place(run_dir, "rollback", max(kept), True, f"probation: {reason}")
        log.warning("probation: %s; going back to version %d", reason, max(kept))
    except OrderError as error:
        log.info("probation: %s, but %s", reason, error)


def _not_trusted(args: Any, store: RolloutStore, turns: Sequence[JudgedTurn]) -> frozenset[Person]:
    if not trust.is_on(args):
        return frozenset()
    return trust.Trust.now(args, store).below({turn.person for turn in turns})
