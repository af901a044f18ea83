"""Standing preferences: adds what people asked for recently to the teacher's prompt of every turn, not only of the
turn that a complaint was about.

A hint teaches the turn before it. The next turn, of another person, has another hint, whose teacher does not see the
first one and pulls the policy back; and a liked turn has no teacher at all. With --standing-wishes a teacher sees the
latest preferences of its person (`person`), or of everyone who shares the model, the turn's own person last
(`people`). It is context distillation (Snell et al. 2022, arXiv 2209.15189) of preferences that no prompt states.

An explicit request takes precedence over a preference. A complaint that repeats its own request is used only for that
turn, and a turn whose request specifies a form (`openclaw.common.wish_themes`) is taught only by its own feedback.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from openclaw.common.wish_themes import asked_themes
from openclaw.errors import ConfigError, HintError
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import hints_of
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.trainer_hooks.arguments import HookSettings, StandingArguments
from openclaw.trainer_hooks.rows import Row
from openclaw.trainer_hooks.trust import Trust, without_untrusted
from openclaw.types import DEFAULT_TRAINER, SampleRecord, Turn

PEOPLE, EACH = 4, 2
"""Number of people (most recent first) whose preferences a teacher sees, and preferences of each. With one preference
each, a person who complained about a list lost the warm tone requested before."""


def check(settings: HookSettings) -> None:
    """Raises ConfigError for standing preferences that no teacher would see."""
    if settings.standing_preferences.is_on and not settings.teaches_in_trainer:
        raise ConfigError(
            f"--standing-wishes {settings.standing_preferences.standing_wishes} needs a method with hints and its "
            "teacher in the trainer: nothing else uses them; drop it, or --teacher-source inference"
        )


@dataclass(frozen=True)
class Teachers:
    """The prompts of a batch's teachers.

    Attributes:
        wishes: each person's last requests, the oldest first; the person who asked last comes last.
        everybody: teachers read the wishes of other people too.
        liked: turns that their person liked are taught that person's wishes too.
    """

    store: RolloutStore
    prompts: HintedPrompts
    wishes: dict[Person, list[str]]
    everybody: bool
    liked: bool

    @classmethod
    def of(
        cls,
        arguments: StandingArguments,
        store: RolloutStore,
        prompts: HintedPrompts,
        records: Sequence[SampleRecord],
        trust: Trust | None,
        trainer: str = DEFAULT_TRAINER,
    ) -> Teachers:
        """Returns the teachers' prompts, with the preferences of trusted people for the trainer's policy up to the
        judgements of these samples."""
        turns = [record.turn.id for record in records]

        def ask(excluded: Collection[Person]) -> dict[Person, list[str]]:
            return store.memory.asked_for(turns, PEOPLE, EACH, excluded, trainer)

        wishes = without_untrusted(trust, ask, lambda statements: statements)
        everybody = arguments.standing_wishes == "people"
        return cls(store, prompts, wishes, everybody, arguments.standing_liked)

    def taught(self, record: SampleRecord, row: Row) -> Row:
        """Returns the sample's row with these teachers. It keeps its own ones if there is no preference, or if its
        person liked the turn and no other person asked for anything: training a form that the turn already has only
        makes the habit override explicit requests."""
        count = len(row.get("teacher_tokens_candidates") or ())
        liked = not count and not self.liked and _is_liked(record)
        if liked and not self._of_others(record.turn.person):
            return row
        own = hints_of(self.store.judgements.of_turn(record.turn.id)) if count else []
        prompts = self.of_turn(record.turn, own[:count] if count > 1 else own[-1:])
        return row | {"teacher_tokens_candidates": prompts} if prompts else row

    def of_turn(self, turn: Turn, own: Sequence[str]) -> list[list[int]]:
        """Returns ids of the prompts of a turn's teachers, one for each of its own hints, else one; [] without any
        preference, or if no such prompt can be rendered. A turn whose request explicitly specifies a form uses only
        its own hints: a preference of unknown theme may be about that form too."""
        before = self._of_others(turn.person) + self.wishes.get(turn.person, [])
        if before and asked_themes(self.store.memory.request_of(turn.id)):
            before = []
        prompts = []
        for last in [[hint] for hint in own] or [[]]:
            read = dict.fromkeys([*(wish for wish in before if wish not in last), *last])
            known = [wish for wish in read if wish not in (turn.memory or ())]
            try:
                prompts += [self.prompts.candidate(turn, "\n".join(known))] if known else []
            except HintError:
                continue
        return prompts

    def _of_others(self, person: Person) -> list[str]:
        """Returns other people's preferences, if teachers see them."""
        others = self.wishes.items() if self.everybody else ()
        return [wish for other, wishes in others if other != person for wish in wishes]


def _is_liked(record: SampleRecord) -> bool:
    return float(record.metadata.get("eval_score", 0.0)) > 0
