"""Trust by agreement with facts: a person's judgements count in proportion to how often recent ones agreed with known
facts.

Several people share one model, and one may lie: thank for wrong results, call right ones wrong. If a fact about a
judged turn is known independently of its person (`openclaw.judge.facts`), the person's words are evidence: they agree
with the fact, or contradict it. With --trust facts

* a sample's compared reward is multiplied by its person's trust: the share of agreements among the last `WINDOW` pieces
  of evidence, drawn to 1 by `PRIOR` imagined agreements, so that one slip costs little;
* a person below --trust-bar is excluded: their samples stay ready and are passed over until the trust is back; their
earlier turns are not trained again, and no teacher reads their preferences; the gate holds no update to
  what they liked, and probation ignores their complaints.

A person who teaches alone always has full trust. Evidence includes all judged turns, also of excluded people, so
trust can recover. Only facts known up to the newest judgement of a batch count, so that the same batch always gives
the same rows.
"""

from __future__ import annotations

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
from openclaw.trainer_hooks.arguments import HookSettings, TrustArguments
from openclaw.types import SampleRecord, Turn

log = logging.getLogger("openclaw.trainer_hooks.trust")

T = TypeVar("T")

WINDOW = 64
"""Number of a person's newest pieces of evidence that count."""
LOOKED_AT = 128
"""Number of a person's newest scores that are searched for evidence."""
PRIOR = 4.0
"""Number of agreements assumed before a person's first evidence."""
_MOST_KEPT = 200_000


def check(settings: HookSettings) -> None:
    """Raises ConfigError for trust settings without effect, and for a hook that cannot be loaded."""
    if not settings.trust.is_on:
        return
    if not settings.trainer.custom_reward_post_process_path:
        raise ConfigError(
            "--trust facts weights rewards when they are compared: add --custom-reward-post-process-path "
            "openclaw.trainer_hooks.credit.compare_with_person, or openclaw.methods.rewards.compare_in_batch"
        )
    facts_hook(settings.trust.facts_path)


def facts_hook(path: str | None) -> FactsHook | None:
    """Returns the function of --facts-path; its exceptions count as unknown facts, and are logged. Raises
    ConfigError."""
    if not path:
        return None
    function = function_of("--facts-path", path)

    def ask(turn: Turn) -> bool | None:
        try:
            answer = function(turn)
        except Exception as error:
            log.warning("--facts-path failed turn=%s error=%s: %s", turn.id, type(error).__name__, error)
            return None
        return None if answer is None else bool(answer)

    return ask


def share_of(evidence: Sequence[bool]) -> float:
    """Returns the share of agreements, shrunk towards 1 while there is little evidence."""
    return (sum(evidence) + PRIOR) / (len(evidence) + PRIOR)


class Evidence:
    """Whether scores agree with facts; each turn is loaded once a process."""

    def __init__(self, store: RolloutStore, hook: FactsHook | None) -> None:
        self._store, self._hook = store, hook
        self._known: dict[Score, bool | None] = {}

    def up_to(self, people: Collection[Person], judgement: int) -> dict[Person, list[bool]]:
        """Returns each person's evidence up to a judgement, newest last; [] for a person who teaches alone."""
        agreements: dict[Person, list[bool]] = {person: [] for person in people}
        if people and self._store.people.several_scored(judgement):
            scores = self._store.people.scores_of(set(people), judgement, LOOKED_AT)
            for score, agrees in zip(scores, self._agreements(scores), strict=True):
                if agrees is not None:
                    agreements[score.person].append(agrees)
        return agreements

    def _agreements(self, scores: Sequence[Score]) -> list[bool | None]:
        """Returns whether each score agrees with the facts; None if it is no evidence."""
        if len(self._known) > _MOST_KEPT:
            self._known.clear()
        turns = self._store.turns.get_many([score.turn_id for score in scores if score not in self._known])
        for score in scores:
            if score not in self._known and score.turn_id in turns:
                turn = turns[score.turn_id]
                fact = fact_of(turn, self._hook)
                self._known[score] = agreement(turn, score.score, fact, score.feedback_text)
        return [self._known.get(score) for score in scores]


@dataclass
class Trust:
    """The trust in people, by the facts known up to a judgement.

    Attributes:
        upto: the number of that judgement.
        in_batch: people with samples in the batch. They were above the bar when it was leased, so they count as at least
            that, also if their oldest samples were passed over before.
    """

    evidence: Evidence
    bar: float
    upto: int
    in_batch: frozenset[Person] = frozenset()
    _known: dict[Person, float] = field(default_factory=dict)

    def of(self, person: Person) -> float:
        """Returns the trust in a person, 0 to 1."""
        return self.of_all([person])[person]

    def of_all(self, people: Iterable[Person]) -> dict[Person, float]:
        """Returns the trust in each of these people, 0 to 1."""
        requested = set(people)
        for person, evidence in self.evidence.up_to(requested - self._known.keys(), self.upto).items():
            trust = share_of(evidence[-WINDOW:])
            self._known[person] = max(trust, self.bar) if person in self.in_batch else trust
        return {person: self._known[person] for person in requested}

    def below(self, people: Iterable[Person]) -> frozenset[Person]:
        """Returns those of these people who are below the threshold."""
        return frozenset(person for person, trust in self.of_all(people).items() if trust < self.bar)


def without_untrusted(
    trust: Trust | None, ask: Callable[[Collection[Person]], T], people_in: Callable[[T], Iterable[Person]]
) -> T:
    """Returns the store's answer without people below the threshold; without `trust`, none are excluded.

    Args:
        ask: queries the store with the people to exclude.
        people_in: the people in an answer.
    """
    excluded: frozenset[Person] = frozenset()
    while True:
        statements = ask(excluded)
        if trust is None or not (more := trust.below(people_in(statements)) - excluded):
            return statements
        excluded |= more


class Exclusion:
    """Determines whose samples are skipped with --trust facts; remembers the last result to log changes."""

    def __init__(self, store: RolloutStore, arguments: TrustArguments) -> None:
        self._store, self._arguments = store, arguments
        self._evidence = Evidence(store, facts_hook(arguments.facts_path))
        self._looked_at: tuple[int, int] | None = None
        self._excluded: frozenset[Person] = frozenset()

    def trust_now(self) -> Trust:
        """Returns the trust by all known facts."""
        return Trust(self._evidence, self._arguments.bar, self._store.judgements.newest_number())

    def trust_at(self, records: Sequence[SampleRecord]) -> Trust:
        """Returns the trust by facts known up to the judgements of a batch."""
        upto = self._store.judgements.newest_number([record.turn.id for record in records])
        people = frozenset(record.turn.person for record in records)
        return Trust(self._evidence, self._arguments.bar, upto, people)

    def excluded_people(self) -> frozenset[Person]:
        """Returns the people with ready samples who are below the threshold now. Updates if there are new judgements
        or ready samples; logs a line for each person who falls below the threshold or recovers."""
        trust = self.trust_now()
        now = trust.upto, self._store.samples.ready_count()
        if now != self._looked_at:
            before, self._excluded = (
                self._excluded,
                trust.below(self._store.people.waiting() | self._excluded),
            )
            self._looked_at = now
            _log_changes(trust, before, self._excluded)
        return self._excluded

    def metrics(self) -> dict[str, float]:
        """Returns the number of skipped samples."""
        excluded = self.excluded_people()
        held = (
            self._store.samples.ready_count() - self._store.samples.ready_count(excluded) if excluded else 0
        )
        return {"rollout/held_back": float(held)}


def _log_changes(trust: Trust, before: frozenset[Person], now: frozenset[Person]) -> None:
    for person in sorted(now - before, key=str):
        log.warning(
            "held back: this person's ratings contradict the facts person=%s trust=%.2f",
            person,
            trust.of(person),
        )
    for person in sorted(before - now, key=str):
        log.info("trusted again person=%s trust=%.2f", person, trust.of(person))
