"""Trust by agreement with facts: what a person says counts as far as it agreed, lately, with what is known otherwise.

Several people share one model, and one may lie: thanks for wrong results, calls right ones wrong. Of a judged turn
something may be known whatever its person said (`openclaw.judge.facts`), and then what the person said is a piece of
evidence: it agrees with the fact, or contradicts it. With --trust facts

* a sample's compared reward is multiplied by its person's trust: the share of agreements among the last `WINDOW` pieces
  of evidence, drawn to 1 by `PRIOR` imagined agreements, so that one slip costs little;
* who is below --trust-bar teaches nothing: the samples stay ready and are passed over until the trust is back; what was
  learned from that person before is not trained again, and what that person asked for stands in no teacher; the gate
  holds no update to what they liked, and probation does not hear their complaints.

Who teaches alone is always trusted. Evidence is of all that was judged, also of what is held back, so trust comes back by
itself. What counts is what was known up to the newest judgement of a batch: the same batch gives the same rows again.
"""

from __future__ import annotations

import argparse
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from openclaw.errors import ConfigError
from openclaw.judge.facts import FactsHook, agreement, fact_of
from openclaw.methods.method import function_of
from openclaw.store import RolloutStore
from openclaw.store.people import Score
from openclaw.store.shares import Person
from openclaw.types import SampleRecord, Turn

log = logging.getLogger("openclaw.trainer_hooks.trust")

T = TypeVar("T")

WINDOW = 64
"""Pieces of evidence of a person that count, the newest."""
LOOKED_AT = 128
"""Scores of a person among which they are found, the newest."""
PRIOR = 4.0
"""Agreements that a person is taken to have given before the first."""
BAR = 0.5
_MOST_KEPT = 200_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("trust", "Whose words count, where several people teach.")
    group.add_argument(
        "--trust",
        choices=("none", "facts"),
        default="none",
        help="facts: what a person says counts as far as it agreed lately with what is known otherwise: whether the sums "
        "of an answer are right, what its tools came to, --facts-path; who teaches alone is trusted",
    )
    group.add_argument(
        "--trust-bar",
        type=_bar,
        default=None,
        help=f"with --trust facts, below this trust a person's samples wait and teach nothing (default: {BAR})",
    )
    group.add_argument(
        "--facts-path",
        default=None,
        help="with --trust facts, module:function or file.py:function that tells more of a turn: True (the answer is "
        "right), False or None",
    )


def check(args: object) -> None:
    """Refuses flags that nothing would read. Raises ConfigError."""
    if not is_on(args):
        for flag, value in (("--trust-bar", "trust_bar"), ("--facts-path", "facts_path")):
            if getattr(args, value, None) is not None:
                raise ConfigError(f"{flag} is read with --trust facts alone; add that, or drop it")
        return
    if not getattr(args, "custom_reward_post_process_path", None):
        raise ConfigError(
            "--trust facts weighs rewards where they are compared: add --custom-reward-post-process-path "
            "openclaw.trainer_hooks.credit.compare_with_person, or openclaw.methods.rewards.compare_in_batch"
        )
    facts_hook(getattr(args, "facts_path", None))


def is_on(args: object) -> bool:
    return getattr(args, "trust", "none") != "none"


@functools.lru_cache(maxsize=4)
def facts_hook(path: str | None) -> FactsHook | None:
    """The function of --facts-path. Raises ConfigError."""
    return None if path is None else functools.partial(_asked, function_of("--facts-path", path))


def share_of(evidence: Sequence[bool]) -> float:
    """The share of agreements, drawn to 1 while there is little evidence."""
    return (sum(evidence) + PRIOR) / (len(evidence) + PRIOR)


@dataclass
class Trust:
    """How far people are trusted by what is known up to a judgement.

    Attributes:
        upto: the number of that judgement.
        in_batch: people with samples in the batch. They were above the bar when it was leased, so they count as at least
            that, also where their oldest samples were held back before.
    """

    store: RolloutStore
    bar: float
    hook: FactsHook | None
    upto: int
    in_batch: frozenset[Person] = frozenset()
    _known: dict[Person, float] = field(default_factory=dict)

    @classmethod
    def now(cls, args: object, store: RolloutStore) -> Trust:
        """By all that is known."""
        return cls(
            store,
            bar_of(args),
            facts_hook(getattr(args, "facts_path", None)),
            store.judgements.newest_number(),
        )

    @classmethod
    def of_batch(cls, args: object, store: RolloutStore, records: Sequence[SampleRecord]) -> Trust:
        """By what is known up to the judgements of a batch."""
        upto = store.judgements.newest_number([record.turn.id for record in records])
        people = frozenset(record.turn.person for record in records)
        return cls(store, bar_of(args), facts_hook(getattr(args, "facts_path", None)), upto, people)

    def of(self, person: Person) -> float:
        """From 0 to 1."""
        return self.of_all([person])[person]

    def of_all(self, people: Iterable[Person]) -> dict[Person, float]:
        """From 0 to 1, each of these people."""
        wanted = set(people)
        self._look_at(wanted - self._known.keys())
        return {person: self._known[person] for person in wanted}

    def below(self, people: Iterable[Person]) -> frozenset[Person]:
        """Who of these people is below the bar."""
        return frozenset(person for person, trust in self.of_all(people).items() if trust < self.bar)

    def _look_at(self, people: set[Person]) -> None:
        if not people:
            return
        evidence: dict[Person, list[bool]] = {person: [] for person in people}
        if self.store.people.several_scored(self.upto):
            scores = self.store.people.scores_of(people, self.upto, LOOKED_AT)
            for score, agrees in zip(scores, _evidence_in(self.store, scores, self.hook), strict=True):
                if agrees is not None:
                    evidence[score.person].append(agrees)
        for person, found in evidence.items():
            trust = share_of(found[-WINDOW:])
            self._known[person] = max(trust, self.bar) if person in self.in_batch else trust


def without_those_below(
    trust: Trust | None, ask: Callable[[Collection[Person]], T], people_in: Callable[[T], Iterable[Person]]
) -> T:
    """What the store answers once everybody below the bar is kept apart; nobody is without `trust`. `ask` takes whom to
    keep apart, `people_in` gives who is in an answer."""
    apart: frozenset[Person] = frozenset()
    while True:
        found = ask(apart)
        if trust is None or not (more := trust.below(people_in(found)) - apart):
            return found
        apart |= more


def held_back(args: object, store: RolloutStore) -> frozenset[Person]:
    """Whose samples are passed over now: of the people with ready samples, those below the bar. Looks again when
    something was judged or other samples are ready; logs a line for everybody who falls below the bar or comes back."""
    if not is_on(args):
        return frozenset()
    last, now = (
        _last_look(store),
        (store.judgements.newest_number(), store.samples.ready_count(), bar_of(args)),
    )
    if last.key != now:
        trust = Trust.now(args, store)
        apart = trust.below(store.people.waiting() | last.apart)
        _tell(trust, last.apart, apart)
        last.key, last.apart = now, apart
    return last.apart


def trust_metrics(args: object, store: RolloutStore) -> dict[str, float]:
    """How many samples are held back."""
    if not is_on(args):
        return {}
    apart = held_back(args, store)
    return {
        "rollout/held_back": float(store.samples.ready_count() - store.samples.ready_count(apart))
        if apart
        else 0.0
    }


def bar_of(args: object) -> float:
    bar = getattr(args, "trust_bar", None)
    return BAR if bar is None else float(bar)


@dataclass
class _Look:
    """Who was held back at the last look, and what the store was like."""

    key: tuple[int, int, float] | None = None
    apart: frozenset[Person] = frozenset()


@functools.lru_cache(maxsize=4)
def _last_look(store: RolloutStore) -> _Look:
    return _Look()


def _tell(trust: Trust, before: frozenset[Person], now: frozenset[Person]) -> None:
    for person in sorted(now - before, key=str):
        log.warning(
            "held back: what this person says contradicts the facts person=%s trust=%.2f",
            person,
            trust.of(person),
        )
    for person in sorted(before - now, key=str):
        log.info("trusted again person=%s trust=%.2f", person, trust.of(person))


def _evidence_in(store: RolloutStore, scores: Sequence[Score], hook: FactsHook | None) -> list[bool | None]:
    """Whether each score agrees with the facts; None where it is no evidence. A turn is read once a process."""
    known = _evidence(store, hook)
    if len(known) > _MOST_KEPT:
        known.clear()
    turns = store.turns.get_many([score.turn_id for score in scores if score not in known])
    for score in scores:
        if score not in known and score.turn_id in turns:
            turn = turns[score.turn_id]
            known[score] = agreement(turn, score.score, fact_of(turn, hook), score.said)
    return [known.get(score) for score in scores]


@functools.lru_cache(maxsize=8)
def _evidence(store: RolloutStore, hook: FactsHook | None) -> dict[Score, bool | None]:
    """What was found of each score."""
    return {}


def _asked(hook: Callable[[Turn], object], turn: Turn) -> bool | None:
    """What a user's function tells of a turn; what it raises is unknown."""
    try:
        told = hook(turn)
    except Exception as error:
        log.warning("--facts-path failed turn=%s error=%s: %s", turn.id, type(error).__name__, error)
        return None
    return None if told is None else bool(told)


def _bar(text: str) -> float:
    bar = float(text)
    if not 0 <= bar < 1:
        raise argparse.ArgumentTypeError(f"{text} is no bar: 0 or more, below 1")
    return bar
