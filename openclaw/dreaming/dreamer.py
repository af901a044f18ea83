"""Samples the dreams and anchors that a batch needs, and returns the available ones.

The answers come from the live weights, which are the first model at version 0 and near it later. The policy does not
learn the answer, but the teacher's distribution along it, which the trainer computes. Of the answers to a wish those
with the largest gain are kept (`measures.py`). Answers that are unlikely without the wish mention the wish itself
("Here is a shorter version") and are removed first.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openclaw.common.messages import text_of
from openclaw.common.plain_sentences import Pole, all_plain_sentences
from openclaw.dreaming import anchors, contrasts, measures
from openclaw.dreaming.asking import IDLE_IN_FLIGHT, IDLE_LIMIT_SECONDS, Answer, Engines, run
from openclaw.dreaming.imperatives import asked_pole, named
from openclaw.dreaming.measures import Scored
from openclaw.dreaming.plans import Plan, Planner, longest_of
from openclaw.dreaming.settings import DreamArguments
from openclaw.dreaming.texts import answers_of, language_of
from openclaw.dreaming.themes import alike, themes_of
from openclaw.dreaming.wishes import Wish
from openclaw.errors import EngineError, StoreError
from openclaw.formats.families import TemplateOptions
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.store import RolloutStore
from openclaw.store.dreams import Dream, DreamKind
from openclaw.store.memory import Statement
from openclaw.store.shares import Person

log = logging.getLogger(__name__)

AGAIN = 0.3
"""Answers sampled each time that a person repeats a known wish of uncertain form, as a share of --dream-prompts."""
NEWEST = 2
"""Factor of --dream-prompts that gives the number of newest answers to a wish from which steps are drawn."""
ENOUGH, ANCHORS_A_BATCH = 48, 24
"""Minimum of anchors for a wish (of its themes, and of other kinds), and the most that are sampled before a batch."""
ENOUGH_FACTS, FACTS_A_BATCH = 32, 48
"""Minimum of facts in the bank, and the most that are asked before a batch. Only correctly answered ones become
anchors."""
BESIDE_CONTRASTS = 16
"""Replaces both of these if the preference is clear: contrasts then replace anchors of its themes."""
BANK, CHUNK = 96, 4
"""Size up to which the bank grows while no batch is due, and the number of anchors sampled at a time."""
REQUEST = 300
"""Characters of a request from which its language is detected."""
LOOK_SECONDS = 2.0
"""Seconds between checks whether the last batch's update is live: on a laptop its training needs the same cores."""
DELETED_SECONDS = 1.0
"""Seconds between checks whether a turn with a wish was deleted, while answers are sampled."""
RETRY_SECONDS = 30.0
"""Pause after the engines did not answer while no batch was due."""


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


class Dreamer:
    """Samples and stores the dreams of one trainer. Thread-safe.

    Args:
        urls: addresses of the serving engines, looked up for each batch.
    """

    def __init__(
        self, store: RolloutStore, settings: DreamArguments, trainer: str, prompts: HintedPrompts,
        urls: Callable[[], Sequence[str]], engines: Callable[..., Engines] = Engines,
    ) -> None:  # fmt: skip
        self._store, self._settings, self._trainer = store, settings, trainer
        self._prompts, self._urls, self._engines = prompts, urls, engines
        self._sampling = threading.Lock()
        self._idle: threading.Thread | None = None
        self._idle_from = 0.0
        # Themes of the last batch, for which the bank grows.
        self._themes: Mapping[str, float] = {}
        self._poles: frozenset[str] = frozenset()
        self._options: TemplateOptions | None = None
        self._language = "en"

    def dreams_for(self, demand: Demand) -> DreamBatch:
        """Samples the missing dreams of a batch, once, and returns all of them. If engines do not answer, the batch
        gets only the dreams sampled for earlier ones."""
        began, model = time.monotonic(), self._prompts.model(demand.options)
        self._options = demand.options
        wishes = [
            dataclasses.replace(one, language=self._language_of(one))
            for person, asked in demand.asked.items()
            for one in Wish.of_person(person, asked, self._asked_pole)
        ]
        if not wishes:
            return DreamBatch()
        dream_batch = DreamBatch(
            themes=_mean([themes_of(wish.text) for wish in wishes]),
            poles=frozenset(named(pole) for wish in wishes for pole in wish.poles),
            is_asked=bool(demand.complained),
            follows=self._is_update_in_flight(demand),
        )
        self._themes, self._poles, self._language = dream_batch.themes, dream_batch.poles, wishes[-1].language
        dream_batch.is_new = any(self._is_new(model, wish, demand.rollout_id) for wish in wishes)
        with self._sampling:
            if not self._store.dreams.was_sampled(self._trainer, model, demand.rollout_id):
                dream_batch.sampled = self._sample(demand, model, wishes, dream_batch.follows)
            self._fill(dream_batch, demand, model, wishes)
        dream_batch.seconds = time.monotonic() - began
        return dream_batch

    def idle(self, rollout_id: int) -> None:
        """Lets a thread add a few anchors to the bank while a rollout is awaited and no update is in flight, unless one
        is running. Engines that do not answer are asked again after a while."""
        if not self._settings.dream_anchors or (self._idle is not None and self._idle.is_alive()):
            return
        if time.monotonic() >= self._idle_from:
            self._idle = threading.Thread(target=self._grow_bank, args=(rollout_id,), daemon=True)
            self._idle.start()

    def _grow_bank(self, rollout_id: int) -> None:
        with self._sampling:
            try:
                if self._store.samples.has_update_in_flight(self._trainer):
                    self._idle_from = time.monotonic() + LOOK_SECONDS
                    return
                options = self._latest_options()
                model = self._prompts.model(options)
                bank = self._bank(model, rollout_id)
                planner = Planner(self._prompts, self._settings, options)
                room = BANK - sum(one.theme != anchors.FACT for one in bank)
                plans = self._anchors(planner, bank, min(CHUNK, room), CHUNK)
                self._keep(model, rollout_id, plans, is_idle=True)
                full = not plans
            except (EngineError, StoreError) as error:
                log.info("anchors are generated later: %s", error)
                full = True
        if full:
            self._idle_from = time.monotonic() + RETRY_SECONDS

    def _language_of(self, wish: Wish) -> str:
        """Returns the language of the wish together with the request before it, since a wish alone is short."""
        request = self._store.memory.request_of(wish.turn_ids[-1])
        return language_of(f"{request[:REQUEST]} {wish.words}")

    def _asked_pole(self, statement: Statement) -> Pole | None:
        """Returns the pole of a statement, judged with the answer that it complained about."""
        turn = self._store.turns.get(statement.turn_id)
        return None if turn is None else asked_pole(statement.text, text_of(turn.response_message))

    def _latest_options(self) -> TemplateOptions:
        """Returns the template options of the last batch; before the first batch, of the newest turn."""
        if self._options is not None:
            return self._options
        newest = self._store.gate_turns.newest(1, self._trainer)
        options: TemplateOptions = newest[0].sampling.get("enable_thinking", True) if newest else True
        return options

    def _fill(self, dream_batch: DreamBatch, demand: Demand, model: str, wishes: Sequence[Wish]) -> None:
        """Adds stored dreams, anchors and measurements to a batch of dreams."""
        newest = NEWEST * self._settings.dream_prompts
        shares, kept, is_measured = [], [], not dream_batch.follows
        factors: list[float] = []
        for person in demand.asked:
            own_wishes = [wish for wish in wishes if wish.person == person]
            for wish in own_wishes:
                weight = measures.weight(self._of(model, wish, demand.rollout_id, "fact"))
                dream_batch.weights[person, wish.text] = weight
                dreams = self._of(model, wish, demand.rollout_id)[-(newest // len(own_wishes)) :]
                if dreams and weight:
                    dream_batch.dreams.setdefault(person, []).extend(dreams)
                    looks = self._of(model, wish, demand.rollout_id, "look")
                    is_measured &= any(look.rollout_id == demand.rollout_id for look in looks)
                    measured = self._measured(wish, looks)
                    shares.append(measured[-1][0] if measured else None)
                    kept.append(measured[-1][1] if measured else None)
                    factors.append(measures.anchor_factor(measured))
        if is_measured:
            known = [share for share in shares if share is not None]
            dream_batch.learned = min(known) if known and len(known) == len(shares) else None
            dream_batch.kept = min((share for share in kept if share is not None), default=None)
        dream_batch.anchor_factor = max(factors, default=1.0)
        opposed = {contrasts.theme_of(pole) for wish in wishes for pole in wish.poles}
        for one in self._bank(model, demand.rollout_id):
            if _is_held(one) and (one.theme in opposed or not contrasts.is_contrast(one.theme)):
                dream_batch.bank.setdefault(one.theme, []).append(one)
        dreams = [one for of_person in dream_batch.dreams.values() for one in of_person]
        for theme in sorted(opposed & set(dream_batch.bank)):
            dream_batch.bank[theme] += contrasts.mismatches(dream_batch.bank[theme], dreams)

    def _measured(self, wish: Wish, looks: Sequence[Dream]) -> list[tuple[float | None, float | None]]:
        """Returns (learned share, kept share) of each rollout with answers to held-out prompts, the oldest first."""
        plain = measures.first_and_newest([one for one in looks if not one.theme])
        contrary = measures.first_and_newest([one for one in looks if one.theme])
        measured: list[tuple[float | None, float | None]] = []
        learned = kept = None
        for rollout_id in sorted(plain.keys() | contrary.keys()):
            if rollout_id in plain:
                learned = self._learned(wish, plain[rollout_id])
            if rollout_id in contrary:
                kept = measures.share_kept(contrary[rollout_id], self._obeys)
            measured.append((learned, kept))
        return measured

    def _learned(self, wish: Wish, looks: Sequence[Dream]) -> float | None:
        """Returns the learned share: by the form of the answers if the wished form is certain, otherwise by their
        likelihood."""
        if not wish.poles:
            return measures.learned(looks)
        longest = self._settings.dream_tokens
        return measures.share_of_form(looks, lambda look: self._has_form(wish.poles, look, longest))

    def _obeys(self, look: Dream) -> bool:
        """Returns whether an answer has the form that its own prompt asks for, the opposite of a wish."""
        answer, tokens = self._prompts.text(look.completion_ids), len(look.completion_ids)
        return contrasts.obeys(
            look.theme, answer, tokens, longest_of(contrasts.asks_for_long(look.theme), self._settings)
        )

    def _of(self, model: str, wish: Wish, upto: int, kind: DreamKind = "dream") -> list[Dream]:
        return self._store.dreams.of_wish(self._trainer, model, wish.person, wish.text, upto, kind)

    def _bank(self, model: str, upto: int) -> list[Dream]:
        return self._store.dreams.known(self._trainer, model, "anchor", upto)

    def _is_new(self, model: str, wish: Wish, rollout_id: int) -> bool:
        """Returns whether the person had no dreams about a similar wish before this rollout."""
        known = self._store.dreams.wishes_of(self._trainer, model, wish.person, rollout_id)
        return not any(alike(wish.text, other) for other in known)

    def _sample(self, demand: Demand, model: str, wishes: Sequence[Wish], follows: bool) -> int:
        """Samples and stores the missing answers of a batch; returns their number."""
        planner = Planner(self._prompts, self._settings, demand.options)
        plans = [plan for wish in wishes for plan in self._plans(demand, model, planner, wish, len(wishes))]
        if not follows:
            plans += [plan for wish in wishes for plan in self._looks(demand, planner, wish)]
        if self._settings.dream_anchors and any(plan.dream.kind == "dream" for plan in plans):
            bank = self._bank(model, demand.rollout_id)
            there = sum(one.theme in self._themes or one.theme == anchors.OTHER for one in bank)
            is_sure = all(wish.poles for wish in wishes)
            most, enough = (BESIDE_CONTRASTS,) * 2 if is_sure else (ANCHORS_A_BATCH, ENOUGH)
            plans += self._anchors(planner, bank, min(most, max(0, enough - there)), FACTS_A_BATCH)
        try:
            sampled = self._keep(model, demand.rollout_id, plans)
            return sampled + self._keep(
                model, demand.rollout_id, self._contrasts(demand, model, planner, wishes)
            )
        except EngineError as error:
            log.warning("rollout %d gets no new dreams: %s", demand.rollout_id, error)
            return 0

    def _contrasts(self, demand: Demand, model: str, planner: Planner, wishes: Sequence[Wish]) -> list[Plan]:
        """Returns plans of contrasts for the dreams of this rollout, or for all dreams of a wish without
        contrasts."""
        if not self._settings.dream_anchors:
            return []
        bank = self._bank(model, demand.rollout_id)
        plans: list[Plan] = []
        for wish in wishes:
            themes = {contrasts.theme_of(pole) for pole in wish.poles}
            known = [one.item for one in bank if one.theme in themes]
            dreams = self._of(model, wish, demand.rollout_id)
            new = [one for one in dreams if one.rollout_id == demand.rollout_id or not known]
            plans += planner.contrasts(wish, new, known)
        return plans

    def _anchors(self, planner: Planner, bank: Sequence[Dream], count: int, questions: int) -> list[Plan]:
        """Returns plans of up to `count` further anchors for the wishes of the last batch, and of up to `questions`
        with known answers."""
        known = {one.item for one in bank}
        plans = planner.anchors(self._themes, self._poles, self._language, known, count)
        if sum(one.theme == anchors.FACT and _is_held(one) for one in bank) < ENOUGH_FACTS:
            plans += planner.held_facts(self._language, known, questions)
        return plans

    def _plans(self, demand: Demand, model: str, planner: Planner, wish: Wish, wishes: int) -> list[Plan]:
        """Returns plans of the trained samples of a wish: dreams and facts for a new one, a few more dreams for a
        repeated one of uncertain form.

        A repeated one of certain form gets none: the live weights have learned some of it, so their brief answers do
        not show where the teacher would stop, and such dreams unlearn it (lab/findings/dreaming.md)."""
        known = [one.item for one in self._of(model, wish, demand.rollout_id)]
        plans: list[Plan] = []
        if not known and not self._of(model, wish, demand.rollout_id, "fact"):
            keep = max(1, self._settings.dream_prompts // (wishes if wishes < 3 else 1))
            plans += planner.dreams(wish, keep, known) + planner.facts(wish)
        elif wish.person in demand.complained and not wish.poles:
            plans += planner.dreams(wish, max(1, round(self._settings.dream_prompts * AGAIN)), known)
        return plans

    def _looks(self, demand: Demand, planner: Planner, wish: Wish) -> list[Plan]:
        """Returns plans of held-out prompts: everyday ones, and requests for the opposite."""
        contrary = planner.contrary_looks(wish) if self._settings.dream_anchors else []
        return planner.looks(wish, demand.rollout_id) + contrary

    def _is_update_in_flight(self, demand: Demand) -> bool:
        """Returns whether the update of an earlier batch is neither live nor rejected. Until then the engines answer
        with the version before it: the steps that they seem to need would follow twice."""
        return self._store.samples.has_update_in_flight(self._trainer, except_rollout_id=demand.rollout_id)

    def _keep(self, model: str, rollout_id: int, plans: Sequence[Plan], is_idle: bool = False) -> int:
        """Samples answers and stores the kept ones; returns the number of samples. Raises EngineError."""
        if not plans:
            return 0
        pairs, scored = run(self._asked(plans, is_idle))
        answered = [one for _, one in pairs]
        checked = [self._checked(one) for one in answered if one.kind == "fact"]
        looks = [one for plan, one in pairs if one.kind == "look" and plan.poles]
        looks += [dataclasses.replace(one.dream, gain=one.gain) for one in scored if one.dream.kind == "look"]
        sampled = Counter(measures.about_of(one) for one in answered if one.kind == "dream")
        dreams = measures.answers_to_keep(
            [one for one in scored if one.dream.kind == "dream" and not self._quotes(one.dream)], sampled
        )
        held = [held for plan, one in pairs if one.kind == "anchor" for held in self._held(plan, one)]
        self._store.dreams.keep(self._trainer, model, rollout_id, [*dreams, *looks, *checked, *held])
        self._report(checked)
        return len(answered)

    def _held(self, plan: Plan, anchor: Dream) -> list[Dream]:
        """Returns an answered anchor and the anchors with the same answer; none if it is a contrast whose answer
        lacks the requested form."""
        if anchor.theme == anchors.FACT:
            return [self._checked(anchor)]
        if contrasts.is_contrast(anchor.theme) and not self._obeys(anchor):
            return []
        also = [
            dataclasses.replace(one, completion_ids=anchor.completion_ids, version=anchor.version)
            for one in plan.also
        ]
        return [anchor, *also]

    async def _asked(
        self, plans: Sequence[Plan], is_idle: bool
    ) -> tuple[list[tuple[Plan, Dream]], list[Scored]]:
        """Does the work of `_sampled` until a turn with one of the wishes is deleted. Raises EngineError, StoreError."""
        sampling = asyncio.create_task(self._sampled(plans, is_idle))
        watching = asyncio.create_task(self._until_deleted(plans))
        try:
            await asyncio.wait((sampling, watching), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watching.cancel()
            if not sampling.done():
                sampling.cancel()
                await asyncio.wait((sampling,))
        if sampling.cancelled():
            watching.result()  # raises StoreError if the store failed
            raise EngineError("a turn with one of the wishes was deleted")
        return sampling.result()

    async def _until_deleted(self, plans: Sequence[Plan]) -> None:
        """Returns when a turn with one of the wishes is deleted."""
        turn_ids = {id_ for plan in plans for id_ in plan.dream.turn_ids}
        known = await asyncio.to_thread(self._store.turns.stored_among, turn_ids)
        while await asyncio.to_thread(self._store.turns.stored_among, known) == known:
            await asyncio.sleep(DELETED_SECONDS)

    async def _sampled(
        self, plans: Sequence[Plan], is_idle: bool
    ) -> tuple[list[tuple[Plan, Dream]], list[Scored]]:
        """Returns (all answers with their plans, dreams with their scores, and scored held-out answers of wishes of
        unknown form)."""
        idle = {"in_flight": IDLE_IN_FLIGHT, "limit": IDLE_LIMIT_SECONDS} if is_idle else {}
        async with self._engines(self._urls(), self._prompts.stop_ids, **idle) as engines:
            answers = await engines.answers([plan.asked for plan in plans])
            pairs = [
                (plan, _answered(plan, one))
                for plan, one in zip(plans, answers, strict=True)
                if one and one.ids
            ]
            looks = [one for plan, one in pairs if one.kind == "look" and not plan.poles]
            both = looks + self._obedient(pairs)
            hinted = await engines.log_probs([(one.taught_ids, one.completion_ids) for one in both])
            plain = await engines.log_probs([(one.prompt_ids, one.completion_ids) for one in both])
        scored = [
            Scored(one, with_wish - without, without / len(one.completion_ids))
            for one, with_wish, without in zip(both, hinted, plain, strict=True)
            if with_wish is not None and without is not None
        ]
        return pairs, scored

    def _obedient(self, pairs: Sequence[tuple[Plan, Dream]]) -> list[Dream]:
        """Returns the dreams among answers, without those that lack the form requested by a plain sentence. Logs each
        wish that the teacher does not obey at all."""
        by_wish: dict[measures.About, list[tuple[Plan, Dream]]] = {}
        for plan, one in pairs:
            if one.kind == "dream":
                by_wish.setdefault(measures.about_of(one), []).append((plan, one))
        kept: list[Dream] = []
        for pairs_of_wish in by_wish.values():
            left = [one for plan, one in pairs_of_wish if self._has_form(plan.poles, one, plan.longest)]
            if len(left) >= measures.OBEYED * len(pairs_of_wish):
                kept += left
            else:
                log.warning(
                    "the model rarely follows the wish of turn %s, even if a plain sentence asks for it (%d of %d "
                    "answers): no dreams are made of it",
                    pairs_of_wish[0][1].turn_ids[-1],
                    len(left),
                    len(pairs_of_wish),
                )
        return kept

    def _has_form(self, poles: Sequence[Pole], dream: Dream, longest: int) -> bool:
        """Returns whether an answer of at most `longest` tokens has all requested forms."""
        answer = self._prompts.text(dream.completion_ids)
        is_cut = len(dream.completion_ids) >= longest
        return all(measures.shows(pole, answer, is_cut) for pole in poles)

    def _quotes(self, dream: Dream) -> bool:
        """Returns whether an answer repeats the wish that its teacher reads."""
        answer = self._prompts.text(dream.completion_ids)
        return measures.quotes(answer, dream.wish or "", *all_plain_sentences())

    def _checked(self, fact: Dream) -> Dream:
        """Returns a fact with gain 1 if its answer contains the right one."""
        answer_text = self._prompts.text(fact.completion_ids)
        answers = answers_of()[fact.item]
        return dataclasses.replace(
            fact, gain=float(any(measures.names(answer_text, answer) for answer in answers))
        )

    def _report(self, checked: Sequence[Dream]) -> None:
        """Logs each wish whose teacher loses facts."""
        for about in dict.fromkeys((one.person, one.wish, one.turn_ids) for one in checked):
            dreams_of_wish = [one for one in checked if (one.person, one.wish, one.turn_ids) == about]
            if (weight := measures.weight(dreams_of_wish)) < 1:
                log.warning(
                    "the model answers fewer simple questions correctly with the wish of turn %s in its prompt: %s",
                    about[2][-1],
                    f"its dreams get weight {weight:.2f}" if weight else "its dreams are not used",
                )


def _is_held(anchor: Dream) -> bool:
    """Returns whether an anchor may be trained: all except facts that the model answered wrong."""
    return anchor.theme != anchors.FACT or bool(anchor.gain)


def _answered(plan: Plan, answer: Answer) -> Dream:
    return dataclasses.replace(plan.dream, completion_ids=answer.ids, version=answer.version)


def _mean(weights: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean weights over all themes; empty if none is known."""
    means: dict[str, float] = {}
    for one in weights:
        for theme, weight in one.items():
            means[theme] = means.get(theme, 0.0) + weight / len(weights)
    return means
