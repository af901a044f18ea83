"""A batch's request for dreams, and the dreams and anchors from which its rows are drawn."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openclaw.dreaming import anchors, contrasts
from openclaw.formats.families import TemplateOptions
from openclaw.store.dreams import Dream
from openclaw.store.memory import Statement
from openclaw.store.shares import Person


@dataclass(frozen=True)
class Demand:
    """A batch's request to the dreamer.

    Attributes:
        asked: standing wishes of each person of the batch, the oldest first.
        complained: people with a wish in this batch.
        options: options of the chat template for these people's prompts.
    """

    rollout_id: int
    asked: Mapping[Person, Sequence[Statement]]
    complained: frozenset[Person]
    options: TemplateOptions


@dataclass
class DreamBatch:
    """The dreams and anchors for one batch, from which its rows are drawn.

    Attributes:
        dreams: the newest dreams by person, without those of wishes that must not be learned.
        weights: weight of the dreams of a person's wish, if it is not 1.
        bank: anchors by theme; contrasts only for the wished poles.
        themes: weights of the wishes' themes.
        poles: the wished pole within a theme, if it is certain. If it is not, the anchors ask for both
            poles, because anchors of the wrong pole do more harm.
        is_new: a wish is of a kind that is new for its person.
        is_asked: a turn of this batch contains a wish.
        follows: an earlier batch's update is neither live nor rejected, so its effect is unknown.
        learned: share of held-out answers that show a wish, the lowest over all wishes; None: not measured.
        kept: obeyed requests for the contrary of a wish, as a share of those obeyed at first, the lowest over all
            wishes; None: not measured.
        anchor_factor: factor of the anchors' weight, see `measures.anchor_factor`.
        sampled: number of answers sampled for this batch; seconds: how long that took.
    """

    dreams: dict[Person, list[Dream]] = field(default_factory=dict)
    weights: dict[tuple[Person, str | None], float] = field(default_factory=dict)
    bank: dict[str, list[Dream]] = field(default_factory=dict)
    themes: dict[str, float] = field(default_factory=dict)
    poles: frozenset[str] = frozenset()
    is_new: bool = False
    is_asked: bool = False
    follows: bool = False
    learned: float | None = None
    kept: float | None = None
    anchor_factor: float = 1.0
    sampled: int = 0
    seconds: float = 0.0

    def weight(self, dream: Dream) -> float:
        """Returns the loss weight of a dream."""
        return self.weights.get((dream.person, dream.wish), 1.0)

    def step(self, seed: str, dreams: int, held: int) -> tuple[list[Dream], list[Dream]]:
        """Returns (dreams, anchors) of one step, the same for the same seed: people in turn, without repetition while
        there are others; none without dreams."""
        if not self.dreams:
            return [], []
        rng = random.Random(seed)
        people = list(self.dreams.values())
        rng.shuffle(people)
        mixed = [rng.sample(dreams_of_person, len(dreams_of_person)) for dreams_of_person in people]
        in_turn = [one for row in itertools.zip_longest(*mixed) for one in row if one is not None]
        bank = {
            theme: anchors.mostly_contrary(rng.sample(there, len(there)), self.poles, lambda one: one.item)
            for theme, there in self.bank.items()
        }
        opposed = [theme for theme in sorted(bank) if contrasts.is_contrast(theme)]
        themes = anchors.drawn_themes(rng, self.themes, sorted(bank), held, opposed)
        places = {theme: itertools.cycle(there) for theme, there in bank.items()}
        return in_turn[:dreams], [next(places[theme]) for theme in themes]
