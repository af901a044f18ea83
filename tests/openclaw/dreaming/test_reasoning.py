"""Dreams of models that reason first: the reasoning is context of student and teacher, only the answer is trained."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw.dreaming import anchors, contrasts
from openclaw.dreaming.anchors import FACTS
from openclaw.dreaming.asking import Engines
from openclaw.dreaming.batch import Demand, DreamBatch
from openclaw.dreaming.dreamer import Dreamer
from openclaw.dreaming.measures import KEEP
from openclaw.dreaming.plans import CONTRARY_LOOKS, LOOKS
from openclaw.dreaming.reasoning import FIRST_TOKENS
from openclaw.dreaming.settings import DreamArguments
from openclaw.methods.hinted_prompt import HINT_HEADER, HintedPrompts
from openclaw.store import RolloutStore
from openclaw.store.dreams import Dream
from openclaw.store.memory import Statement
from openclaw.trainer_hooks.dreams import rows_of
from openclaw.types import Message, NewTurn, Turn
from tests.fakes.gateway_model import build_model
from tests.fakes.scripted_engine import FakeEngine

MakeTurn = Callable[..., NewTurn]
SETTINGS = DreamArguments(dream_steps=2, dream_prompts=4, dream_tokens=16, dream_reasoning_tokens=8)
ANSWER = [40, 41, 42]
OPENED = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"""


class ReasoningEngine(FakeEngine):
    """Reasons before each answer, in ids that depend on the prompt, and stops at the stop tokens of a request.

    `endless` returns whether it never closes the reasoning after a prompt.
    """

    def endless(self, prompt: list[int]) -> bool:
        return False

    def marks(self, prompts: HintedPrompts) -> ReasoningEngine:
        assert prompts.reasoning is not None
        self.open_id, self.close_id = prompts.reasoning.open_id, prompts.reasoning.close_id
        return self

    def thought(self, prompt: list[int]) -> list[int]:
        """Returns the reasoning after a prompt, without its marks: the digits of the prompt's length."""
        return [60 + int(digit) for digit in str(len(prompt))]

    async def _stream(self, body: dict[str, Any], writer: Any) -> None:
        prompt = body["input_ids"]
        marks = [at for at, token in enumerate(prompt) if token in (self.open_id, self.close_id)]
        if marks and prompt[marks[-1]] == self.close_id:
            say = ANSWER
        else:
            own = prompt[: marks[-1]] if marks else prompt
            close = [50] * 99 if self.endless(own) else [self.close_id, *ANSWER]
            say = [*([] if marks else [self.open_id]), *self.thought(own), *close]
        stops = [at for at, token in enumerate(say, 1) if token in body["sampling_params"]["stop_token_ids"]]
        self.say = say[: stops[0]] if stops else say
        self.forget_prompts()
        await super()._stream(body, writer)


@pytest.fixture(scope="module")
def prompts(model: Path) -> HintedPrompts:
    return HintedPrompts.of(model)


@pytest.fixture
def thinker(prompts: HintedPrompts) -> Iterator[ReasoningEngine]:
    fake = ReasoningEngine()
    fake.marks(prompts).start()
    yield fake
    fake.end()


@pytest.fixture
def brief(store: RolloutStore, make_turn: MakeTurn) -> Demand:
    """A person who certainly wants shorter answers; reasoning is enabled."""
    answer: Message = {"role": "assistant", "content": "word " * 60}
    turn = store.turns.record(make_turn(person="ann", response_message=answer))
    return Demand(0, {"ann": [Statement("way too long my guy", 0.0, turn.id)]}, frozenset({"ann"}), True)


@pytest.fixture
def pirate(store: RolloutStore, make_turn: MakeTurn) -> Demand:
    turn = store.turns.record(make_turn(person="ann"))
    asked = Statement("Talk like a pirate.", 0.0, turn.id)
    return Demand(0, {"ann": [asked]}, frozenset({"ann"}), True)


def dreamer_of(
    store: RolloutStore, prompts: HintedPrompts, engine: FakeEngine, settings: DreamArguments = SETTINGS
) -> Dreamer:
    engines = functools.partial(Engines, limit=60.0)
    return Dreamer(store, settings, "trainer", prompts, lambda: [engine.url], engines)


def stored(store: RolloutStore, prompts: HintedPrompts, kind: Any, demand: Demand) -> list[Dream]:
    model = prompts.model(demand.options) + ":reasoning"
    return store.dreams.known("trainer", model, kind, demand.rollout_id)


def split(ids: list[int], engine: ReasoningEngine) -> tuple[list[int], list[int]]:
    """Returns (prompt, reasoning with its marks) of the ids before an answer."""
    assert ids[-1] == engine.close_id and ids.count(engine.open_id) == ids.count(engine.close_id) == 1
    at = ids.index(engine.open_id)
    return ids[:at], ids[at:]


def test_student_and_teacher_read_the_same_reasoning_that_does_not_know_the_wish(
    store: RolloutStore, prompts: HintedPrompts, thinker: ReasoningEngine, pirate: Demand
) -> None:
    dream_batch = dreamer_of(store, prompts, thinker).dreams_for(pirate)
    dreams = dream_batch.dreams["ann"]
    assert len(dreams) == 4
    wish = f"{HINT_HEADER}\nTalk like a pirate."
    for one in dreams:
        plain, reasoning = split(one.prompt_ids, thinker)
        hinted, same = split(one.taught_ids, thinker)
        expected = [thinker.open_id, *thinker.thought(plain), thinker.close_id]
        assert reasoning == same == expected and one.completion_ids == ANSWER
        assert thinker.thought(plain) != thinker.thought(hinted), "the test cannot tell them apart"
        question = next(prompt for prompt in anchors.dreamt_prompts() if prompt.id == one.item)
        asked = [{"role": "user", "content": question.text}]
        assert plain == prompts.asked(asked, True, 16) != hinted
        assert wish in prompts.tokenizer.decode(hinted) and wish not in prompts.tokenizer.decode(plain)
    # Reasoning is sampled without the wish, at a temperature above 0; only the answer is greedy for facts.
    opened = [body for body in thinker.requests if body["input_ids"][-1] == thinker.open_id]
    answered = [body for body in thinker.requests if body["input_ids"][-1] == thinker.close_id]
    assert all(wish not in prompts.tokenizer.decode(body["input_ids"]) for body in opened)
    assert {body["sampling_params"]["temperature"] for body in opened} == {0.8}
    assert {body["sampling_params"]["max_new_tokens"] for body in opened} == {8}
    with_wish = [body for body in answered if wish in prompts.tokenizer.decode(body["input_ids"])]
    assert [body["sampling_params"]["temperature"] for body in with_wish].count(0.0) == FACTS
    assert len(with_wish) == FACTS + round(4 / KEEP) and len(opened) == len(answered)


def test_no_token_of_the_reasoning_is_trained(
    store: RolloutStore, prompts: HintedPrompts, thinker: ReasoningEngine, brief: Demand,
    make_sample: Callable[..., Turn], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(contrasts, "FULL", 0.1)
    dream_batch = dreamer_of(store, prompts, thinker).dreams_for(brief)
    make_sample()
    (record,) = store.samples.lease(0, 1)
    rows = rows_of(SETTINGS, dream_batch, record, 0, 0, [2])
    of_questions = {row["metadata"]["case"] for row in rows}
    assert of_questions == {"dream", "anchor_bank"}
    for row in rows:
        (taught,) = row["teacher_tokens_candidates"]
        assert row["tokens"][-row["response_length"] :] == ANSWER == taught[-3:]
        assert row["loss_mask"] == [1, 1, 1]
        student, teacher = split(row["tokens"][:-3], thinker), split(taught[:-3], thinker)
        assert student[1] == teacher[1] and len(student[1]) > 2
        assert (student == teacher) == (row["metadata"]["case"] == "anchor_bank")


def test_contrasts_and_mismatches_keep_the_reasoning_of_their_own_prompts(
    store: RolloutStore, prompts: HintedPrompts, thinker: ReasoningEngine, brief: Demand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(contrasts, "FULL", 0.1)
    bank = dreamer_of(store, prompts, thinker).dreams_for(brief).bank
    assert {"length long", anchors.OTHER} <= set(bank)
    prompts_of_contrasts = set()
    for one in (one for held in bank.values() for one in held):
        prompt, reasoning = split(one.prompt_ids, thinker)
        assert one.taught_ids == one.prompt_ids and one.completion_ids == ANSWER and len(reasoning) > 2
        if contrasts.is_contrast(one.theme):
            prompts_of_contrasts.add((one.item, tuple(prompt)))
    # All wordings of one request share the answer of the first, with its reasoning.
    assert len(prompts_of_contrasts) == sum(contrasts.WORDINGS.values()) * len(
        {item.partition("-")[2] for item, _ in prompts_of_contrasts}
    )


def test_progress_and_damage_are_measured_in_the_answer_after_the_reasoning(
    store: RolloutStore, prompts: HintedPrompts, thinker: ReasoningEngine, brief: Demand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(contrasts, "FULL", 0.1)
    dreamer = dreamer_of(store, prompts, thinker)
    assert dreamer.dreams_for(brief).learned == 1.0
    looks = stored(store, prompts, "look", brief)
    assert len(looks) == LOOKS + sum(CONTRARY_LOOKS.values())
    assert all(one.completion_ids == ANSWER and split(one.prompt_ids, thinker) for one in looks)
    again = dreamer.dreams_for(dataclasses.replace(brief, rollout_id=1))
    assert (again.learned, again.kept) == (1.0, 1.0)


def test_answers_whose_reasoning_is_cut_are_dropped_and_counted(
    store: RolloutStore, prompts: HintedPrompts, thinker: ReasoningEngine, brief: Demand,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    thinker.endless = lambda prompt: len(prompt) % 2 == 0  # type: ignore[method-assign]
    dreamer = dreamer_of(store, prompts, thinker)
    dream_batch = dreamer.dreams_for(brief)
    looks = [one for one in stored(store, prompts, "look", brief) if not one.theme]
    assert 0 < len(looks) < LOOKS and dream_batch.learned == 1.0, "a cut look does not count"
    every = [*looks, *dream_batch.dreams["ann"], *stored(store, prompts, "anchor", brief)]
    assert all(len(split(one.prompt_ids, thinker)[0]) % 2 for one in every)
    lines = [line for line in caplog.messages if "--dream-reasoning-tokens" in line]
    opened = [body["input_ids"] for body in thinker.requests if body["input_ids"][-1] == thinker.open_id]
    cut = sum(len(ids) % 2 == 1 for ids in opened)
    assert len(lines) <= 2 and sum(int(line.split()[0]) for line in lines) == cut > 0
    assert "did not end within 8 tokens" in lines[0]


def test_a_model_that_opens_no_reasoning_is_asked_once_for_each_answer(
    store: RolloutStore, prompts: HintedPrompts, engine: FakeEngine, pirate: Demand
) -> None:
    """Instruct variants of Qwen3 have the tokens and the template of those that reason."""
    engine.say = ANSWER
    dream_batch = dreamer_of(store, prompts, engine).dreams_for(pirate)
    lengths = [body["sampling_params"]["max_new_tokens"] for body in engine.requests]
    assert lengths.count(FIRST_TOKENS) == 1 and len(lengths) == dream_batch.sampled + 1
    assert all(prompts.reasoning.open_id not in one.prompt_ids for one in dream_batch.dreams["ann"])  # type: ignore[union-attr]


@pytest.mark.parametrize(("options", "limit"), [(False, 8), (True, 0)])
def test_disabled_reasoning_needs_no_question_and_leaves_answers_whole(
    store: RolloutStore, prompts: HintedPrompts, engine: FakeEngine, pirate: Demand, options: bool, limit: int
) -> None:
    engine.say = ANSWER
    settings = dataclasses.replace(SETTINGS, dream_reasoning_tokens=limit)
    demand = dataclasses.replace(pirate, options=options)
    dream_batch = dreamer_of(store, prompts, engine, settings).dreams_for(demand)
    assert dream_batch.dreams["ann"] and len(engine.requests) == dream_batch.sampled
    assert store.dreams.known("trainer", prompts.model(options), "anchor", 0)


def test_a_template_that_opens_the_reasoning_needs_no_question(
    tmp_path: Path, store: RolloutStore, thinker: ReasoningEngine, pirate: Demand
) -> None:
    folder = build_model(tmp_path / "opened")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "qwen2"}))
    tokens = {"eos_token": "<|im_end|>", "chat_template": OPENED}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    opened = HintedPrompts.of(folder)
    thinker.marks(opened)
    dream_batch = dreamer_of(store, opened, thinker).dreams_for(pirate)
    assert FIRST_TOKENS not in {body["sampling_params"]["max_new_tokens"] for body in thinker.requests}
    assert len(thinker.requests) == 2 * dream_batch.sampled
    for one in dream_batch.dreams["ann"]:
        plain, reasoning = split(one.prompt_ids, thinker)
        written = opened.tokenizer.encode("\n", add_special_tokens=False)
        assert reasoning == [thinker.open_id, *written, *thinker.thought(plain), thinker.close_id]
        assert split(one.taught_ids, thinker)[1] == reasoning and one.completion_ids == ANSWER


def test_reasoning_leaves_room_for_the_answer_in_the_models_context(
    tmp_path: Path, store: RolloutStore, thinker: ReasoningEngine, pirate: Demand
) -> None:
    narrow = HintedPrompts.of(build_model(tmp_path / "narrow", context=200))
    thinker.marks(narrow)
    settings = dataclasses.replace(SETTINGS, dream_reasoning_tokens=500)
    dream_batch = dreamer_of(store, narrow, thinker, settings).dreams_for(pirate)
    assert dream_batch.sampled
    for body in thinker.requests:
        limit = body["sampling_params"]["max_new_tokens"]
        assert len(body["input_ids"]) + limit <= 200 or limit == 1


def test_no_answer_to_the_first_prompt_leaves_a_batch_without_dreams(
    store: RolloutStore, prompts: HintedPrompts, engine: FakeEngine, pirate: Demand,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    engine.refuse = "too long"
    assert dreamer_of(store, prompts, engine).dreams_for(pirate).dreams == {}
    assert "not known whether the model reasons" in caplog.text


def test_answers_of_other_limits_are_not_mixed(
    store: RolloutStore, prompts: HintedPrompts, thinker: ReasoningEngine, pirate: Demand
) -> None:
    """With 0, stored answers begin with reasoning; they must not be trained as answers after it."""
    whole = dataclasses.replace(SETTINGS, dream_reasoning_tokens=0)
    first: DreamBatch = dreamer_of(store, prompts, thinker, whole).dreams_for(pirate)
    assert all(one.completion_ids[0] == thinker.open_id for one in first.dreams["ann"])
    later = dataclasses.replace(pirate, rollout_id=1)
    divided = dreamer_of(store, prompts, thinker).dreams_for(later)
    assert divided.is_new and all(one.completion_ids == ANSWER for one in divided.dreams["ann"])
