"""Samples what a batch needs of dreams and anchors, and gives what there is.

The live weights answer: at version 0 they are the first model, later they are near it. The policy does not learn the
answer, but the teacher's distribution along it, which the trainer computes. Of the answers to a wish those with the
largest gain are kept: log p(answer | with the wish) - log p(answer | without). Answers that are unlikely without the wish
talk about the wish itself ("Here is a shorter version"), and are left out before.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw.dreaming import anchors
from openclaw.dreaming.anchors import AnchorPrompt
from openclaw.dreaming.asking import Answer, Asked, Engines, run
from openclaw.dreaming.settings import DreamArguments
from openclaw.dreaming.texts import Prompt
from openclaw.dreaming.themes import alike, themes_of
from openclaw.errors import EngineError, HintError
from openclaw.formats.families import TemplateOptions
from openclaw.methods.hinted_prompt import HintedPrompts, with_hint
from openclaw.store import RolloutStore
from openclaw.store.dreams import Dream
from openclaw.store.memory import Said
from openclaw.store.shares import Person

log = logging.getLogger(__name__)

KEEP = 0.4
"""Share of the answers to a wish that are kept."""
UNLIKELY = 0.25
"""Share that is left out before, the least likely ones without the wish."""
AGAIN = 0.3
"""Answers that are added whenever a known wish is trained again, as a share of --dream-prompts."""
NEWEST = 2
"""Times --dream-prompts: the newest answers to a wish that steps are drawn from."""
ANCHORS_A_BATCH, ANCHORS_OF_A_WISH = 24, 48
"""Anchors that are sampled before a batch with known wishes, and with a new one."""
LONG = 4 / 3
"""Times --dream-tokens: the longest answer of an anchor that asks for long answers."""
HELD_OUT = 24
"""Everyday prompts, the last ones, that are never dreamt on."""


@dataclass(frozen=True)
class Wish:
    """What teachers read in the dreams of a person: one wish, or two of different kinds together."""

    person: Person
    text: str
    turn_ids: tuple[str, ...]

    @classmethod
    def of_person(cls, person: Person, asked: Sequence[Said]) -> list[Wish]:
        """Wishes to dream of in turn: two wordings of the same wish stand alone, wishes of different kinds together."""
        if len(asked) == 2 and not alike(asked[0].text, asked[1].text):
            turns = tuple(dict.fromkeys(one.turn_id for one in asked))
            return [cls(person, "\n".join(one.text for one in asked), turns)]
        return [cls(person, one.text, (one.turn_id,)) for one in asked]


@dataclass(frozen=True)
class Demand:
    """What a batch asks of the dreamer.

    Attributes:
        asked: standing wishes of each person of the batch, the oldest first.
        complained: people who asked for something in this very batch.
        options: how the chat template writes these people's prompts.
    """

    rollout_id: int
    asked: Mapping[Person, Sequence[Said]]
    complained: frozenset[Person]
    options: TemplateOptions


@dataclass
class Night:
    """What there is for a batch.

    Attributes:
        dreams: by person, the newest ones.
        bank: anchors by theme.
        themes: weights of what the wishes are about.
        is_new: a wish is of a kind that its person had not asked for before.
        sampled: answers that were sampled now; seconds: how long that took.
    """

    dreams: dict[Person, list[Dream]] = field(default_factory=dict)
    bank: dict[str, list[Dream]] = field(default_factory=dict)
    themes: dict[str, float] = field(default_factory=dict)
    is_new: bool = False
    sampled: int = 0
    seconds: float = 0.0

    def step(self, seed: str, dreams: int, held: int) -> tuple[list[Dream], list[Dream]]:
        """(dreams, anchors) of one step, the same for the same seed: people in turn, without repetition while there are
        others; none if nothing was dreamt."""
        if not self.dreams:
            return [], []
        rng = random.Random(seed)
        people = list(self.dreams.values())
        rng.shuffle(people)
        mixed = [rng.sample(mine, len(mine)) for mine in people]
        in_turn = [one for row in itertools.zip_longest(*mixed) for one in row if one is not None]
        bank = {theme: rng.sample(there, len(there)) for theme, there in self.bank.items()}
        themes = anchors.drawn_themes(rng, self.themes, sorted(bank), held)
        places = {theme: itertools.cycle(there) for theme, there in bank.items()}
        return in_turn[:dreams], [next(places[theme]) for theme in themes]


@dataclass(frozen=True)
class _Plan:
    """An answer to sample: everything but the answer, and the most tokens it may have."""

    dream: Dream
    longest: int


@dataclass(frozen=True)
class _Scored:
    """An answer to a wish; likely: mean log-prob of its tokens without the wish."""

    dream: Dream
    gain: float
    likely: float


class Dreamer:
    """Dreams of one trainer.

    Args:
        urls: addresses of the serving engines, looked up for each batch.
    """

    def __init__(
        self, store: RolloutStore, settings: DreamArguments, trainer: str, prompts: HintedPrompts,
        urls: Callable[[], Sequence[str]], engines: Callable[..., Engines] = Engines,
    ) -> None:  # fmt: skip
        self._store, self._settings, self._trainer = store, settings, trainer
        self._prompts, self._urls, self._engines = prompts, urls, engines

    def night(self, demand: Demand) -> Night:
        """Samples what is missing for a batch, unless that was done before, and returns what there is. Engines that do
        not answer leave the batch with what was sampled for others."""
        began, model = time.monotonic(), self._prompts.model(demand.options)
        wishes = [one for person, asked in demand.asked.items() for one in Wish.of_person(person, asked)]
        if not wishes:
            return Night()
        night = Night(themes=_mean([themes_of(wish.text) for wish in wishes]))
        night.is_new = any(self._is_new(model, wish, demand.rollout_id) for wish in wishes)
        if not self._store.dreams.was_sampled(self._trainer, model, demand.rollout_id):
            night.sampled = self._sample(demand, model, wishes, night)
        newest = NEWEST * self._settings.dream_prompts
        for person in demand.asked:
            mine = [wish for wish in wishes if wish.person == person]
            found = [self._of(model, wish, demand.rollout_id)[-newest // len(mine) :] for wish in mine]
            if any(found):
                night.dreams[person] = [one for dreams in found for one in dreams]
        for one in self._store.dreams.known(self._trainer, model, "anchor", demand.rollout_id):
            night.bank.setdefault(one.theme, []).append(one)
        night.seconds = time.monotonic() - began
        return night

    def _of(self, model: str, wish: Wish, upto: int) -> list[Dream]:
        return self._store.dreams.of_wish(self._trainer, model, wish.person, wish.text, upto)

    def _is_new(self, model: str, wish: Wish, rollout_id: int) -> bool:
        """Whether its person had dreams of nothing like it before this rollout."""
        known = self._store.dreams.wishes_of(self._trainer, model, wish.person, rollout_id)
        return not any(alike(wish.text, other) for other in known)

    def _sample(self, demand: Demand, model: str, wishes: Sequence[Wish], night: Night) -> int:
        """Samples dreams and anchors and stores them; returns how many answers were sampled."""
        bank = {
            one.item for one in self._store.dreams.known(self._trainer, model, "anchor", demand.rollout_id)
        }
        count = ANCHORS_OF_A_WISH if night.is_new else ANCHORS_A_BATCH
        held = [
            plan
            for prompt in anchors.wanted(night.themes, bank, count if self._settings.dream_anchors else 0)
            for plan in self._held(prompt, demand.options)
        ]
        dreams = [plan for wish in wishes for plan in self._dreams(demand, model, wish, len(wishes))]
        try:
            found = run(self._asked(dreams, held))
        except EngineError as error:
            log.warning("rollout %d goes without new dreams: %s", demand.rollout_id, error)
            return 0
        kept = _most_telling(found[0]) + found[1]
        self._store.dreams.keep(self._trainer, model, demand.rollout_id, kept)
        return len(found[0]) + len(found[1])

    async def _asked(
        self, dreams: Sequence[_Plan], held: Sequence[_Plan]
    ) -> tuple[list[_Scored], list[Dream]]:
        """(answers to wishes with their scores, anchors); those without an answer are left out."""
        async with self._engines(self._urls(), self._prompts.stop_ids) as engines:
            plans = [*dreams, *held]
            answers = await engines.answers([Asked(one.dream.taught_ids, one.longest) for one in plans])
            pairs = list(zip(plans, answers, strict=True))
            answered = [_answered(plan, one) for plan, one in pairs[: len(dreams)] if one and one.ids]
            both = [(one.taught_ids, one.completion_ids) for one in answered]
            both += [(one.prompt_ids, one.completion_ids) for one in answered]
            scores = await engines.log_probs(both)
        scored = [
            _Scored(one, with_wish - without, without / len(one.completion_ids))
            for one, with_wish, without in zip(
                answered, scores[: len(answered)], scores[len(answered) :], strict=True
            )
            if with_wish is not None and without is not None
        ]
        return scored, [_answered(plan, one) for plan, one in pairs[len(dreams) :] if one and one.ids]

    def _dreams(self, demand: Demand, model: str, wish: Wish, wishes: int) -> list[_Plan]:
        """Prompts with the wish that are to be answered: of those that were dreamt on least, the first."""
        known = self._of(model, wish, demand.rollout_id)
        if not known:
            keep = max(1, self._settings.dream_prompts // (wishes if wishes < 3 else 1))
        elif wish.person in demand.complained:
            keep = max(1, round(self._settings.dream_prompts * AGAIN))
        else:
            return []
        asked = [one.item for one in known]
        order = sorted(anchors.dreamt_prompts()[:-HELD_OUT], key=lambda prompt: asked.count(prompt.id))
        prompts = list(itertools.islice(itertools.cycle(order), round(keep / KEEP)))
        return [plan for prompt in prompts for plan in self._dream(prompt, wish, demand.options)]

    def _dream(self, prompt: Prompt, wish: Wish, options: TemplateOptions) -> list[_Plan]:
        """None if the model's template cannot write it, or it is too long."""
        messages, longest = [{"role": "user", "content": prompt.text}], self._settings.dream_tokens
        try:
            plain = self._prompts.asked(messages, options, longest)
            taught = self._prompts.asked(with_hint(messages, wish.text), options, longest)
        except HintError:
            return []
        made = Dream(
            kind="dream", item=prompt.id, person=wish.person, wish=wish.text, turn_ids=wish.turn_ids,
            prompt_ids=plain, taught_ids=taught, completion_ids=[], version=0,
        )  # fmt: skip
        return [_Plan(made, longest)]

    def _held(self, prompt: AnchorPrompt, options: TemplateOptions) -> list[_Plan]:
        longest = round(self._settings.dream_tokens * (LONG if prompt.is_long else 1))
        try:
            ids = self._prompts.asked(prompt.messages, options, longest)
        except HintError:
            return []
        made = Dream(
            kind="anchor", item=prompt.id, theme=prompt.theme, prompt_ids=ids, taught_ids=ids,
            completion_ids=[], version=0,
        )  # fmt: skip
        return [_Plan(made, longest)]


def _answered(plan: _Plan, answer: Answer) -> Dream:
    return dataclasses.replace(plan.dream, completion_ids=answer.ids, version=answer.version)


def _most_telling(answers: Sequence[_Scored]) -> list[Dream]:
    """Of the answers to each wish of each person those that are kept, with their gains, in the order of the prompts."""
    kept: list[_Scored] = []
    wishes = dict.fromkeys((one.dream.person, one.dream.wish) for one in answers)
    for wish in wishes:
        mine = [one for one in answers if (one.dream.person, one.dream.wish) == wish]
        count = max(1, round(len(mine) * KEEP))
        likely = sorted(mine, key=lambda one: -one.likely)[: max(count, round(len(mine) * (1 - UNLIKELY)))]
        best = {id(one) for one in sorted(likely, key=lambda one: -one.gain)[:count]}
        kept += [one for one in mine if id(one) in best]
    return [dataclasses.replace(one.dream, gain=one.gain) for one in kept]


def _mean(weights: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Weights of all themes together; empty if none is known."""
    found: dict[str, float] = {}
    for one in weights:
        for theme, weight in one.items():
            found[theme] = found.get(theme, 0.0) + weight / len(weights)
    return found
