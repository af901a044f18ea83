"""Samples for a batch, which answers are kept, and the batch if no engine answers."""

from __future__ import annotations

import dataclasses
import functools
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from openclaw.common.plain_sentences import Pole, all_plain_sentences, plain_sentences
from openclaw.dreaming import anchors, contrasts, imperatives, measures, texts
from openclaw.dreaming.anchors import FACTS, AnchorPrompt
from openclaw.dreaming.asking import Engines
from openclaw.dreaming.batch import Demand, DreamBatch
from openclaw.dreaming.dreamer import ANCHORS_A_BATCH, CHUNK, FACTS_A_BATCH, Dreamer
from openclaw.dreaming.measures import KEEP
from openclaw.dreaming.plans import CONTRARY_LOOKS, LOOKS, Planner
from openclaw.dreaming.settings import DreamArguments
from openclaw.dreaming.texts import ShippedWish, everyday
from openclaw.dreaming.wishes import Wish
from openclaw.methods.hinted_prompt import HINT_HEADER, HintedPrompts
from openclaw.store import RolloutStore
from openclaw.store.dreams import Dream
from openclaw.store.memory import Statement
from openclaw.types import Message, NewTurn, Turn
from tests.fakes.scripted_engine import FakeEngine

MakeTurn = Callable[..., NewTurn]
SETTINGS = DreamArguments(dream_steps=2, dream_prompts=4, dream_tokens=16)

WISH = f"{HINT_HEADER}\nShorter, please."


@pytest.fixture(scope="module")
def prompts(model: Path) -> HintedPrompts:
    return HintedPrompts.of(model)


@pytest.fixture
def dreamer(store: RolloutStore, prompts: HintedPrompts, engine: FakeEngine) -> Dreamer:
    engine.say = [40, 41, 42]
    return Dreamer(store, SETTINGS, "trainer", prompts, lambda: [engine.url])


@pytest.fixture
def demand(store: RolloutStore, make_turn: MakeTurn) -> Callable[..., Demand]:
    def make(rollout_id: int, *texts: str, person: str = "ann", complained: bool = True) -> Demand:
        turns = [store.turns.record(make_turn(person=person)) for _ in texts]
        asked = [Statement(text, 0.0, turn.id) for text, turn in zip(texts, turns, strict=True)]
        return Demand(rollout_id, {person: asked}, frozenset({person} if complained else ()), False)

    return make


def test_the_answers_with_the_largest_gain_are_kept(
    dreamer: Dreamer,
    engine: FakeEngine,
    prompts: HintedPrompts,
    demand: Callable[..., Demand],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def score(ids: list[int], start: int) -> float:
        text = prompts.tokenizer.decode(ids)
        return -10.0 if WISH not in text else -float(len(text) % 7)

    monkeypatch.setattr(measures, "UNLIKELY", 0.0)
    engine.score = score
    dream_batch = dreamer.dreams_for(demand(0, "Shorter, please."))
    (mine,) = dream_batch.dreams.values()
    assert (
        dream_batch.is_new
        and len(mine) == 4
        and dream_batch.sampled == round(4 / KEEP) + LOOKS + 2 * FACTS + ANCHORS_A_BATCH + FACTS_A_BATCH
    )
    questions = {prompt.id: prompt.text for prompt in everyday()}
    for one in mine:
        text = prompts.tokenizer.decode(one.taught_ids)
        assert f"{questions[one.item]}\n\n{WISH}" in text
        assert WISH not in prompts.tokenizer.decode(one.prompt_ids)
        assert one.completion_ids == [40, 41, 42] and one.gain is not None and one.version == 3
    asked = [body for body in engine.requests if WISH in prompts.tokenizer.decode(body["input_ids"])]
    temperatures = [body["sampling_params"]["temperature"] for body in asked]
    assert temperatures.count(0.8) == round(4 / KEEP) and temperatures.count(0.0) == FACTS
    sampled = [body["input_ids"] for body in asked if body["sampling_params"]["temperature"] == 0.8]
    gains = sorted(score([*ids, 40, 41, 42], 0) + 10 for ids in sampled)
    assert sorted(one.gain or 0.0 for one in mine) == pytest.approx(gains[-4:])


def test_a_certain_complaint_is_taught_by_a_plain_sentence(
    dreamer: Dreamer, store: RolloutStore, prompts: HintedPrompts, make_turn: MakeTurn
) -> None:
    answer: Message = {"role": "assistant", "content": "word " * 60}
    turn = store.turns.record(make_turn(person="ann", response_message=answer))
    said = [Statement("way too long my guy", 0.0, turn.id)]
    dream_batch = dreamer.dreams_for(Demand(0, {"ann": said}, frozenset({"ann"}), False))
    questions = {prompt.id: prompt.text for prompt in everyday()}
    (mine,) = dream_batch.dreams.values()
    taught = [prompts.tokenizer.decode(one.taught_ids) for one in mine]
    for text, one in zip(taught, mine, strict=True):
        assert one.wish == plain_sentences("short", "en")[0] and "my guy" not in text
        assert any(f"{plain}\n\n{questions[one.item]}" in text for plain in all_plain_sentences())
    assert dream_batch.poles == {"length short"}


@pytest.fixture
def brief(store: RolloutStore, make_turn: MakeTurn) -> Demand:
    """Somebody who surely wishes shorter answers."""
    answer: Message = {"role": "assistant", "content": "word " * 60}
    turn = store.turns.record(make_turn(person="ann", response_message=answer))
    return Demand(0, {"ann": [Statement("way too long my guy", 0.0, turn.id)]}, frozenset({"ann"}), False)


def test_questions_of_dreams_get_anchors_with_opposite_requests(
    dreamer: Dreamer, engine: FakeEngine, prompts: HintedPrompts, store: RolloutStore, brief: Demand,
    make_turn: MakeTurn, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(contrasts, "FULL", 0.1)
    dream_batch = dreamer.dreams_for(brief)
    (mine,) = dream_batch.dreams.values()
    both = dream_batch.bank["length long"]
    held = [one for one in both if not contrasts.is_mismatch(one.theme)]
    assert both == held + contrasts.mismatches(held, mine)
    assert (
        len(held)
        == len({one.item for one in held})
        == sum(contrasts.WORDINGS.values()) * len({one.item for one in mine})
    )
    by_id = requests_by_id()
    questions = {prompt.id: prompt.text for prompt in everyday()}
    for one in held:
        wish, _, item = one.item.partition("-")
        assert (by_id[wish].theme, by_id[wish].pole) == ("length", "long")
        text = prompts.tokenizer.decode(one.prompt_ids)
        for part in (*re.split("{[Qq]uestion}", by_id[wish].text), questions[item]):
            assert part.strip(" .:!?").lower() in text.lower()
        assert item in {dream.item for dream in mine} and one.completion_ids == [40, 41, 42]
        assert one.taught_ids == one.prompt_ids and one.person is None and one.turn_ids == ()
    places = Counter(by_id[one.item.partition("-")[0]].place for one in held)
    assert set(places) == {"question", "system", "complaint"}
    # They and their mismatches stand in for anchors of the wish's own themes in the steps.
    drawn = Counter(one.theme for number in range(8) for one in dream_batch.step(str(number), 2, 8)[1])
    assert min(drawn["length long"], drawn["length long mismatch"]) >= 10
    assert 40 <= drawn["length long"] + drawn["length long mismatch"] < 8 * 8
    # A second batch samples none for the same dreams, and others' wishes hold none of them.
    count = len(engine.requests)
    again = dreamer.dreams_for(dataclasses.replace(brief, rollout_id=1, complained=frozenset()))
    assert again.bank["length long"] == both
    assert len(engine.requests) == count + LOOKS + sum(CONTRARY_LOOKS.values())
    other = store.turns.record(make_turn(person="bob"))
    assert (
        "length long"
        not in dreamer.dreams_for(
            Demand(2, {"bob": [Statement("Talk like a pirate.", 0.0, other.id)]}, frozenset({"bob"}), False)
        ).bank
    )


def test_a_complaint_of_a_contrast_follows_the_dreams_answer_without_the_token_that_ends_it(
    prompts: HintedPrompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = prompts.tokenizer.encode("It depends.", add_special_tokens=False)
    dream = Dream(
        kind="dream", item=anchors.dreamt_prompts()[0].id, person="ann", wish="Shorter, please.", turn_ids=("t",),
        prompt_ids=[1], taught_ids=[1], completion_ids=[*answer, *prompts.stop_ids], version=0,
    )  # fmt: skip
    answers: list[str] = []
    prompts_of = contrasts.prompts_of

    def noted(question: str, item: str, answer: str, pole: Pole, language: str) -> list[AnchorPrompt]:
        answers.append(answer)
        return prompts_of(question, item, answer, pole, language)

    monkeypatch.setattr(contrasts, "prompts_of", noted)
    wish = Wish("ann", "Shorter, please.", ("t",), poles=("short",))
    plans = Planner(prompts, SETTINGS, False).contrasts(wish, [dream], ())
    assert plans and answers == ["It depends."]


def test_only_the_first_dreams_are_contrasted(
    prompts: HintedPrompts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openclaw.dreaming.plans.MOST_CONTRASTED", 3)
    mine = [
        Dream(
            kind="dream", item=one.id, person="ann", wish="Shorter, please.", turn_ids=("t",), prompt_ids=[1],
            taught_ids=[1], completion_ids=[5], version=0,
        )
        for one in anchors.dreamt_prompts()[:5]
    ]  # fmt: skip
    wish = Wish("ann", "Shorter, please.", ("t",), poles=("short",))
    plans = Planner(prompts, SETTINGS, False).contrasts(wish, [*mine, *mine], ())
    assert {plan.dream.item.partition("-")[2] for plan in plans} == {one.item for one in mine[:3]}


def test_held_out_opposite_requests_measure_the_loss(
    dreamer: Dreamer,
    engine: FakeEngine,
    prompts: HintedPrompts,
    brief: Demand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contrasts, "FULL", 0.1)
    first = dreamer.dreams_for(brief)
    assert first.kept is None
    looks = [one for one in _looks(dreamer, prompts, brief) if one.theme]
    assert Counter(requests_by_id()[one.item.partition("-")[0]].place for one in looks) == CONTRARY_LOOKS
    trained = {one.item.partition("-")[0] for one in first.bank["length long"]}
    assert trained.isdisjoint(one.item.partition("-")[0] for one in looks)
    assert not {one.item.partition("-")[2] for one in looks} & {one.item for one in first.dreams["ann"]}
    # One token is no long answer any more.
    engine.say = [40]
    assert dreamer.dreams_for(dataclasses.replace(brief, rollout_id=1)).kept == 0.25, (
        "none of 16, and the error"
    )
    engine.say = [40, 41, 42]
    assert dreamer.dreams_for(dataclasses.replace(brief, rollout_id=2)).kept == 1


def _looks(dreamer: Dreamer, prompts: HintedPrompts, demand: Demand) -> list[Dream]:
    """Returns the answers to held-out prompts of ann's wish for short answers."""
    wish = plain_sentences("short", "en")[0]
    return dreamer._store.dreams.of_wish(
        "trainer", prompts.model(False), "ann", wish, demand.rollout_id, "look"
    )


@functools.cache
def requests_by_id() -> dict[str, ShippedWish]:
    return {wish.id: wish for wish in (*texts.wishes(), *texts.frames())}


def test_a_contrast_whose_answer_lacks_the_requested_form_is_not_kept(
    dreamer: Dreamer, brief: Demand
) -> None:
    # Three tokens are no long answer.
    assert "length long" not in dreamer.dreams_for(brief).bank


def test_answers_without_the_form_of_the_plain_sentence_are_not_kept(
    dreamer: Dreamer,
    engine: FakeEngine,
    store: RolloutStore,
    make_turn: MakeTurn,
    caplog: pytest.LogCaptureFixture,
) -> None:
    turn = store.turns.record(
        make_turn(person="ann", response_message={"role": "assistant", "content": "It is 7."})
    )
    demand = Demand(0, {"ann": [Statement("Say hello first.", 0.0, turn.id)]}, frozenset({"ann"}), False)
    dream_batch = dreamer.dreams_for(demand)
    assert dream_batch.dreams == {} and f"the wish of turn {turn.id}, even if a plain sentence" in caplog.text
    again = dreamer.dreams_for(dataclasses.replace(demand, rollout_id=1))
    assert again.dreams == {} and again.sampled < dream_batch.sampled


def test_a_repeated_rollout_samples_nothing_and_has_the_same_steps(
    dreamer: Dreamer, engine: FakeEngine, demand: Callable[..., Demand]
) -> None:
    wanted = demand(0, "Shorter, please.")
    first = dreamer.dreams_for(wanted)
    count = len(engine.requests)
    again = dreamer.dreams_for(wanted)
    assert len(engine.requests) == count and again.sampled == 0 and again.is_new
    for seed in ("one", "two"):
        assert first.step(seed, 5, 6) == again.step(seed, 5, 6)
    dreams, held = first.step("one", 3, 6)
    assert len({one.id for one in dreams}) == 3 and len({one.id for one in held}) == 6
    assert first.step("two", 3, 6) != (dreams, held)


def test_a_repeated_preference_gets_a_few_more_dreams_and_an_unchanged_one_none(
    dreamer: Dreamer, engine: FakeEngine, demand: Callable[..., Demand]
) -> None:
    dreamer.dreams_for(demand(0, "Shorter, please."))
    again = dreamer.dreams_for(demand(1, "Shorter, please."))
    assert not again.is_new and len(again.dreams["ann"]) == 5
    assert len({one.item for one in again.dreams["ann"]}) == 5
    standing = dreamer.dreams_for(demand(2, "Shorter, please.", complained=False))
    assert len(standing.dreams["ann"]) == 5 and standing.sampled == LOOKS


def test_another_wording_of_a_certain_wish_samples_no_dreams(
    dreamer: Dreamer, store: RolloutStore, make_turn: MakeTurn, brief: Demand
) -> None:
    first = dreamer.dreams_for(brief)
    answer: Message = {"role": "assistant", "content": "word " * 60}
    turn = store.turns.record(make_turn(person="ann", response_message=answer))
    asked = {"ann": [*brief.asked["ann"], Statement("Shorter, please.", 1.0, turn.id)]}
    again = dreamer.dreams_for(Demand(1, asked, frozenset({"ann"}), False))
    assert again.dreams == first.dreams and again.is_asked and not again.is_new


def test_two_wordings_of_a_wish_alternate_and_two_wishes_are_combined() -> None:
    short, brief, hello = (
        Statement("Shorter!", 0.0, "1"),
        Statement("Be brief.", 0.0, "2"),
        Statement("Say hello first.", 0.0, "3"),
    )
    longer = Statement("Give me every detail, at length.", 0.0, "4")

    def wishes(*asked: Statement, **sure: Pole) -> list[Wish]:
        return Wish.of_person("ann", asked, lambda one: sure.get(f"turn{one.turn_id}"))

    assert [one.text for one in wishes(short, brief)] == ["Shorter!", "Be brief."]
    (one,) = wishes(short, brief, turn1="short", turn2="short")
    assert (one.text, one.turn_ids, one.words) == (plain_sentences("short", "en")[0], ("2",), "Be brief.")
    for sure in ({}, {"turn1": "short", "turn4": "long"}):
        (last,) = wishes(short, longer, **sure)
        assert last.turn_ids == ("4",) and last.poles == (("long",) if sure else ())
    (both,) = wishes(short, hello)
    assert both.text == "Shorter!\nSay hello first." and both.turn_ids == ("1", "3") and both.poles == ()
    (both,) = wishes(short, hello, turn1="short", turn3="greet")
    assert both.poles == ("short", "greet")


def test_a_guess_against_two_earlier_wishes_waits_until_it_is_repeated() -> None:
    def asked(text: str) -> Pole | None:
        return imperatives.asked_pole(text, "")

    def kept(*texts: str) -> list[str]:
        said = [Statement(text, float(at), str(at)) for at, text in enumerate(texts)]
        return [one.text for one in Wish.of_person("ann", said, lambda one: asked(one.text))]

    short, guess = plain_sentences("short", "en")[0], plain_sentences("long", "en")[0]
    words = f"{guess} not a whole page, i only get a minute"
    assert asked(short) == "short" and asked(words) == "long"
    assert kept(short, short, words) == [short]
    assert kept(short, short, words, words) == [guess]
    assert kept(short, words) == [guess], "one guess against one"
    explicit = f"{guess} Please give me a longer answer with more detail."
    assert kept(short, short, explicit) == [guess]
    assert kept(short, short, "Give me a longer answer with more detail.")[-1] != short, (
        "no judge guessed this"
    )


def test_a_wish_of_uncertain_form_is_replaced_by_a_certain_one() -> None:
    short, vague, other = (
        Statement("Shorter!", 0.0, "1"),
        Statement("My thumb hurts.", 0.0, "2"),
        Statement("Hm.", 0.0, "3"),
    )
    for asked in ([short, vague], [vague, short], [vague, short, vague, other]):
        (left,) = Wish.of_person("ann", asked, lambda one: "short" if one is short else None)
        assert left.words == "Shorter!" and left.poles == ("short",)


def test_a_wish_of_another_kind_is_new(dreamer: Dreamer, demand: Callable[..., Demand]) -> None:
    assert dreamer.dreams_for(demand(0, "Shorter, please.")).is_new
    assert not dreamer.dreams_for(demand(1, "Shorter, please.", "Keep it brief.")).is_new
    assert dreamer.dreams_for(demand(2, "Say hello first.")).is_new
    assert dreamer.dreams_for(demand(3, "Shorter, please.", person="bob")).is_new


def test_without_an_engine_a_batch_uses_earlier_samples(
    store: RolloutStore,
    prompts: HintedPrompts,
    dreamer: Dreamer,
    demand: Callable[..., Demand],
    caplog: pytest.LogCaptureFixture,
) -> None:
    lonely = functools.partial(Engines, ready_seconds=0.2)
    without = Dreamer(store, SETTINGS, "trainer", prompts, lambda: ["http://127.0.0.1:9"], lonely)
    dream_batch = without.dreams_for(demand(0, "Shorter, please."))
    assert not dream_batch.dreams and not dream_batch.bank and dream_batch.step("seed", 5, 6) == ([], [])
    assert "rollout 0 gets no new dreams" in caplog.text and len(caplog.records) == 1
    dreamer.dreams_for(demand(1, "Shorter, please."))
    assert without.dreams_for(demand(2, "Shorter, please.")).dreams


def test_a_wish_is_learned_once_answers_without_it_look_like_answers_with_it(
    dreamer: Dreamer, engine: FakeEngine, prompts: HintedPrompts, demand: Callable[..., Demand]
) -> None:
    with_wish = -12.0

    def score(ids: list[int], start: int) -> float:
        return with_wish if WISH in prompts.tokenizer.decode(ids) else -2.0

    engine.score = score
    assert dreamer.dreams_for(demand(0, "Shorter, please.")).learned is None
    standing = demand(1, "Shorter, please.", complained=False)
    assert dreamer.dreams_for(standing).learned == 0.0
    with_wish = -3.0
    assert dreamer.dreams_for(standing).learned == 0.0
    assert dreamer.dreams_for(demand(2, "Shorter, please.", complained=False)).learned == 1.0


def test_a_wish_is_not_measured_while_the_update_before_it_is_not_live(
    dreamer: Dreamer,
    prompts: HintedPrompts,
    store: RolloutStore,
    brief: Demand,
    make_sample: Callable[..., Turn],
) -> None:
    assert dreamer.dreams_for(brief).learned == 1.0
    make_sample()
    store.samples.lease(0, 1, trainer="trainer")
    assert dreamer.dreams_for(brief).learned == 1.0, "the own batch does not count"
    following = dataclasses.replace(brief, rollout_id=1, complained=frozenset())
    dream_batch = dreamer.dreams_for(following)
    assert (dream_batch.learned, dream_batch.kept, dream_batch.follows) == (None, None, True)
    assert {look.rollout_id for look in _looks(dreamer, prompts, following)} == {0}, "sampled for nothing"
    store.samples.commit_lease(0, version=1, trainer="trainer")
    assert dreamer.dreams_for(dataclasses.replace(following, rollout_id=2)).learned == 1.0


def test_a_wish_of_known_form_is_measured_by_greedy_answers_without_their_log_probs(
    dreamer: Dreamer, engine: FakeEngine, brief: Demand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrasts, "FULL", 0.1)
    assert dreamer.dreams_for(brief).learned == 1.0
    scored: list[int] = []
    engine.score = lambda ids, start: float(scored.append(start) or 0.0)
    before = len(engine.requests)
    assert dreamer.dreams_for(dataclasses.replace(brief, rollout_id=1, complained=frozenset())).learned == 1.0
    looks = engine.requests[before:]
    assert [body["sampling_params"]["temperature"] for body in looks] == [0.0] * (
        LOOKS + sum(CONTRARY_LOOKS.values())
    )
    assert not scored


def test_a_wish_with_which_the_teacher_loses_facts_has_no_dreams(
    store: RolloutStore, prompts: HintedPrompts, engine: FakeEngine, demand: Callable[..., Demand],
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    engine.say = [40, 41, 42]
    dreamer = Dreamer(store, SETTINGS, "trainer", prompts, lambda: [engine.url])

    def checked(fact: Dream) -> Dream:
        return replace(fact, gain=float(fact.taught_ids == fact.prompt_ids))

    monkeypatch.setattr(dreamer._checks, "fact", checked)
    dream_batch = dreamer.dreams_for(demand(0, "Say hello first."))
    assert not dream_batch.dreams and set(dream_batch.weights.values()) == {0.0}
    assert "its dreams are not used" in caplog.text and "hello" not in caplog.text
    assert dream_batch.step("seed", 4, 4) == ([], [])


def test_the_bank_grows_in_the_background_while_a_rollout_is_awaited(
    dreamer: Dreamer, store: RolloutStore, prompts: HintedPrompts, demand: Callable[..., Demand],
    make_sample: Callable[..., Turn], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    dreamer.dreams_for(demand(0, "Shorter, please."))
    model = prompts.model(False)
    before = len(store.dreams.known("trainer", model, "anchor", 1))
    make_sample()
    store.samples.lease(0, 1, trainer="trainer")
    dreamer.idle(1)
    assert dreamer._idle is not None
    dreamer._idle.join(10)
    assert len(store.dreams.known("trainer", model, "anchor", 1)) == before, "the update is not live yet"
    store.samples.commit_lease(0, version=1, trainer="trainer")
    monkeypatch.setattr(dreamer, "_idle_from", time.monotonic())
    dreamer.idle(1)
    dreamer._idle.join(10)
    assert len(store.dreams.known("trainer", model, "anchor", 1)) == before + 2 * CHUNK
    assert len(store.dreams.known("trainer", model, "anchor", 0)) == before
    assert not store.dreams.was_sampled("trainer", model, 1)


def test_the_bank_waits_after_no_anchor_was_answered(
    dreamer: Dreamer, engine: FakeEngine, demand: Callable[..., Demand]
) -> None:
    """Reasoning may be too slow for the time limit; asking again at once would occupy the engine without end."""
    dreamer.dreams_for(demand(0, "Shorter, please."))
    engine.refuse = "too slow"
    dreamer.idle(1)
    assert dreamer._idle is not None
    dreamer._idle.join(10)
    asked = len(engine.requests)
    dreamer.idle(1)
    dreamer._idle.join(10)
    assert len(engine.requests) == asked


def test_facts_that_the_model_answers_right_become_anchors(
    store: RolloutStore, prompts: HintedPrompts, engine: FakeEngine, demand: Callable[..., Demand]
) -> None:
    (first, *others) = anchors.next_facts("en", (), FACTS_A_BATCH)
    engine.say = prompts.tokenizer.encode(f"It is {first.answers[0]}.", add_special_tokens=False)
    dreamer = Dreamer(store, SETTINGS, "trainer", prompts, lambda: [engine.url])
    dream_batch = dreamer.dreams_for(demand(0, "Shorter, please."))
    held = dream_batch.bank[anchors.FACT]
    assert first.id in {one.item for one in held} and len(held) < FACTS_A_BATCH == len(others) + 1
    assert all(one.taught_ids == one.prompt_ids and one.gain == 1 for one in held)
    _dreams, step = dream_batch.step("seed", 2, 8)
    assert [one.theme for one in step].count(anchors.FACT) == 2
    bank = store.dreams.known("trainer", prompts.model(False), "anchor", 0)
    asked = {one.item for one in bank if one.theme == anchors.FACT}
    assert len(asked) == FACTS_A_BATCH
    # Those that were answered wrong are not asked again.
    dreamer.dreams_for(demand(1, "Shorter, please."))
    again = store.dreams.known("trainer", prompts.model(False), "anchor", 1)
    assert len([one for one in again if one.theme == anchors.FACT]) == 2 * FACTS_A_BATCH
    assert len({one.item for one in again}) == len(again)


def test_dreams_of_a_step_alternate_between_people(dreamer: Dreamer, demand: Callable[..., Demand]) -> None:
    ann, bob = demand(0, "Shorter, please."), demand(0, "Talk like a pirate.", person="bob")
    dream_batch = dreamer.dreams_for(
        Demand(0, {**ann.asked, **bob.asked}, ann.complained | bob.complained, False)
    )
    dreams, _held = dream_batch.step("seed", 4, 0)
    assert sorted(str(one.person) for one in dreams) == ["ann", "ann", "bob", "bob"]


def test_no_dreams_without_a_preference(dreamer: Dreamer, engine: FakeEngine) -> None:
    assert dreamer.dreams_for(Demand(0, {}, frozenset(), False)) == DreamBatch() and not engine.requests


def test_no_further_prompt_with_a_wish_is_sent_after_its_deletion(
    store: RolloutStore, dreamer: Dreamer, engine: FakeEngine, demand: Callable[..., Demand],
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("openclaw.dreaming.sampler.DELETED_SECONDS", 0.02)
    engine.chunk, engine.pause = 1, 1.0
    asked = demand(0, "Shorter, please.")
    with ThreadPoolExecutor(1) as thread:
        dream_batch = thread.submit(dreamer.dreams_for, asked)
        while not engine.requests:
            time.sleep(0.01)
        store.deletion.delete_person("ann")
        assert not dream_batch.result(20).dreams
    before = len(engine.requests)
    assert "rollout 0 gets no new dreams: a turn with one of the wishes was deleted" in caplog.text
    time.sleep(0.1)
    assert len(engine.requests) == before


def test_slow_answers_leave_time_to_score_the_finished_ones(
    store: RolloutStore, prompts: HintedPrompts, engine: FakeEngine, demand: Callable[..., Demand]
) -> None:
    engine.say, engine.chunk, engine.pause = [40, 41, 42], 1, 0.25
    hasty = functools.partial(Engines, limit=4.5)
    dream_batch = Dreamer(store, SETTINGS, "trainer", prompts, lambda: [engine.url], hasty).dreams_for(
        demand(0, "Shorter, please.")
    )
    assert (
        0 < dream_batch.sampled < round(4 / KEEP) + LOOKS + 2 * FACTS + ANCHORS_A_BATCH + FACTS_A_BATCH
        and dream_batch.dreams
    )
