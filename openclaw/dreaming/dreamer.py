"""Samples the dreams and anchors that a batch needs, and returns the available ones.

The answers come from the live weights, which are the first model at version 0 and near it later. The policy does not
learn the answer, but the teacher's distribution along it, which the trainer computes. Of the answers to a wish those
with the largest gain are kept (`measures.py`). Answers that are unlikely without the wish mention the wish itself
("Here is a shorter version") and are removed first.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from openclaw.common.messages import text_of
from openclaw.common.plain_sentences import Pole
from openclaw.dreaming import anchors, contrasts, measures
from openclaw.dreaming.asking import Engines
from openclaw.dreaming.batch import Demand, DreamBatch
from openclaw.dreaming.checks import Checks
from openclaw.dreaming.imperatives import asked_pole, named
from openclaw.dreaming.plans import Plan, Planner
from openclaw.dreaming.sampler import Sampler
from openclaw.dreaming.settings import DreamArguments
from openclaw.dreaming.texts import language_of
from openclaw.dreaming.themes import alike, themes_of
from openclaw.dreaming.wishes import Wish
from openclaw.errors import EngineError, StoreError
from openclaw.formats.families import TemplateOptions
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.store import RolloutStore
from openclaw.store.dreams import Dream, DreamKind
from openclaw.store.memory import Statement

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
RETRY_SECONDS = 30.0
"""Pause after the engines did not answer while no batch was due."""


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
        self._prompts = prompts
        self._sampler = Sampler(store, settings, prompts, urls, engines)
        self._checks = Checks(prompts, settings)
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
        began, model = time.monotonic(), self._model(demand.options)
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
                model = self._model(options)
                bank = self._bank(model, rollout_id)
                planner = Planner(self._prompts, self._settings, options)
                room = BANK - sum(one.theme != anchors.FACT for one in bank)
                plans = self._anchors(planner, bank, min(CHUNK, room), CHUNK)
                # Reasoning may be too slow for the limit: asking again at once would use the processor for nothing.
                full = self._keep(model, rollout_id, plans, is_idle=True) == 0
            except (EngineError, StoreError) as error:
                log.info("anchors are generated later: %s", error)
                full = True
        if full:
            self._idle_from = time.monotonic() + RETRY_SECONDS

    def _model(self, options: TemplateOptions) -> str:
        """Returns an id of the format of stored answers: that of the prompts, and whether these contain reasoning."""
        divides = self._settings.dream_reasoning_tokens and self._prompts.may_reason(options)
        return self._prompts.model(options) + (":reasoning" if divides else "")

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
                kept = measures.share_kept(contrary[rollout_id], self._checks.obeys)
            measured.append((learned, kept))
        return measured

    def _learned(self, wish: Wish, looks: Sequence[Dream]) -> float | None:
        """Returns the learned share: by the form of the answers if the wished form is certain, otherwise by their
        likelihood."""
        if not wish.poles:
            return measures.learned(looks)
        longest = self._settings.dream_tokens
        return measures.share_of_form(looks, lambda look: self._checks.has_form(wish.poles, look, longest))

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
        return self._store.samples.has_update_in_flight(self._trainer, before_rollout_id=demand.rollout_id)

    def _keep(self, model: str, rollout_id: int, plans: Sequence[Plan], is_idle: bool = False) -> int:
        """Samples answers and stores the kept ones; returns the number of samples. Raises EngineError."""
        if not plans:
            return 0
        answered, scored = self._sampler.sample(plans, is_idle)
        facts = [self._checks.fact(plan.dream) for plan in answered if plan.dream.kind == "fact"]
        looks = [plan.dream for plan in answered if plan.dream.kind == "look" and plan.poles]
        looks += [dataclasses.replace(one.dream, gain=one.gain) for one in scored if one.dream.kind == "look"]
        sampled = Counter(measures.about_of(plan.dream) for plan in answered if plan.dream.kind == "dream")
        dreams = measures.answers_to_keep(
            [one for one in scored if one.dream.kind == "dream" and not self._checks.quotes(one.dream)],
            sampled,
        )
        held = [one for plan in answered if plan.dream.kind == "anchor" for one in self._held(plan)]
        self._store.dreams.keep(self._trainer, model, rollout_id, [*dreams, *looks, *facts, *held])
        self._report(facts)
        return len(answered)

    def _held(self, plan: Plan) -> list[Dream]:
        """Returns an answered anchor and the anchors with the same answer; none if it is a contrast whose answer
        lacks the requested form."""
        if plan.dream.theme == anchors.FACT:
            return [self._checks.fact(plan.dream)]
        if contrasts.is_contrast(plan.dream.theme) and not self._checks.obeys(plan.dream):
            return []
        return [plan.dream, *plan.also]

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


def _mean(weights: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Returns the mean weights over all themes; empty if none is known."""
    means: dict[str, float] = {}
    for one in weights:
        for theme, weight in one.items():
            means[theme] = means.get(theme, 0.0) + weight / len(weights)
    return means
