"""A preference is removed from a person's prompts once the weights follow it without being asked, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw.errors import ClientError
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway import canaries as watched
from openclaw.gateway.canaries import MOST, Canaries, Count
from openclaw.store import RolloutStore
from openclaw.store.rights import Asker
from openclaw.types import Drop, Judgement, NewTurn, Turn
from tests.fakes.chat_client import HELLO
from tests.fakes.running_gateway import StartGateway

WISH = "Please write it in plain sentences."
LIST, PROSE = [8, 9], [10, 11]


class Weights:
    """Scripted answers by number, and log-probs in which a list loses `gap` nats if the preference is in the
    prompt."""

    def __init__(self, tokenizer: Tokenizer, answers: Callable[[int], list[int]], gap: float = 6.0) -> None:
        self._tokenizer, self._answers, self._gap = tokenizer, answers, gap
        self.version, self.asked = 3, 0
        self.questions: set[str] = set()

    async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]:
        assert WISH not in self._tokenizer.decode(prompt_ids)
        self.asked += 1
        self.questions.add(str(turn.messages[-1]["content"]))
        return self._answers(seed), self.version

    async def log_prob(self, prompt_ids: list[int], ids: list[int]) -> float:
        wished = WISH in self._tokenizer.decode(prompt_ids)
        return -2.0 - self._gap * (wished and ids == LIST)


@pytest.fixture
def chat_format(model: Path) -> ChatFormat:
    return ChatFormat(ModelFolder.read(model), Tokenizer(model))


@pytest.fixture
def asked_for(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> RolloutStore:
    """A store in which ada has complained about a list at version 3."""
    store.versions.weights_live(-1, 3, None, True, None, None)
    turn = store.turns.record(make_turn(person="ada", memory=[], completion_ids=LIST))
    store.turns.answer(turn.id, [{"role": "user", "content": WISH}])
    found = [Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=[WISH])]
    assert store.judgements.finish(turn.id, found, Drop("test"))
    return store


def look(store: RolloutStore, chat_format: ChatFormat, weights: Weights) -> Any:
    canaries = Canaries(store, chat_format, weights)
    people = asyncio.run(canaries.due(weights.version))
    return [asyncio.run(canaries.look(person, weights.version)) for person in people]


def texts(store: RolloutStore) -> list[str]:
    return [wish.text for wish in store.memory.remembered("ada")]


def test_thirty_five_positive_answers_decide_and_so_do_two_early_negative_ones() -> None:
    assert (Count(34, 34).held, Count(35, 35).held) == (None, True)
    assert (Count(1, 0).held, Count(2, 0).held) == (None, False)
    assert (Count(54, 53).held, Count(55, 54).held) == (None, True)
    assert Count(40, 38).held is None and Count(40, 36).held is False


def test_a_learned_preference_is_removed_from_the_prompts(
    asked_for: RolloutStore, chat_format: ChatFormat
) -> None:
    weights = Weights(chat_format.tokenizer, lambda number: PROSE)
    ((found,),) = look(asked_for, chat_format, weights)
    assert (found.gap, found.count, weights.asked) == (6.0, Count(35, 35), 35)
    assert texts(asked_for) == []
    (wish,) = asked_for.memory.wishes("ada")
    assert (wish.held_by, wish.details) == (3, {"gap": 6.0, "version": 3, "asked": 35, "shown": 35})


def test_an_unlearned_preference_stays_and_is_tested_again_at_the_next_version(
    asked_for: RolloutStore, chat_format: ChatFormat
) -> None:
    weights = Weights(chat_format.tokenizer, lambda number: LIST)
    look(asked_for, chat_format, weights)
    assert weights.asked == 2 and texts(asked_for) == [WISH]
    assert look(asked_for, chat_format, weights) == []
    asked_for.versions.weights_live(0, 4, 3, False, None, None)
    later = Weights(chat_format.tokenizer, lambda number: PROSE, gap=1.0)
    later.version = 4
    look(asked_for, chat_format, later)
    assert texts(asked_for) == [], "the gap is that of the time of the complaint"


def test_an_undecided_preference_stays_in_the_prompts(
    asked_for: RolloutStore, chat_format: ChatFormat
) -> None:
    weights = Weights(chat_format.tokenizer, lambda number: LIST if number % 20 == 19 else PROSE)
    ((found,),) = look(asked_for, chat_format, weights)
    assert found.count.held is None and weights.asked == MOST and texts(asked_for) == [WISH]


def test_a_preference_without_effect_on_the_model_does_not_count_as_learned(
    asked_for: RolloutStore, chat_format: ChatFormat
) -> None:
    weights = Weights(chat_format.tokenizer, lambda number: PROSE, gap=1.0)
    look(asked_for, chat_format, weights)
    assert weights.asked == 0 and texts(asked_for) == [WISH]


def test_no_result_is_recorded_while_another_version_answers(
    asked_for: RolloutStore, chat_format: ChatFormat
) -> None:
    weights = Weights(chat_format.tokenizer, lambda number: PROSE)
    canaries = Canaries(asked_for, chat_format, weights)
    weights.version = 4
    assert asyncio.run(canaries.look(Asker(None, "ada"), 3)) == []
    (wish,) = asked_for.memory.wishes("ada")
    assert (wish.held_by, wish.details) == (None, {})


def test_requests_that_the_engine_rejects_are_not_counted(
    asked_for: RolloutStore, chat_format: ChatFormat
) -> None:
    class Short(Weights):
        async def answer(self, turn: Turn, prompt_ids: list[int], seed: int) -> tuple[list[int], int]:
            if seed % 2:
                raise ClientError("too long")
            return await super().answer(turn, prompt_ids, seed)

    ((found,),) = look(asked_for, chat_format, Short(chat_format.tokenizer, lambda number: PROSE))
    assert found.count == Count(35, 35) and texts(asked_for) == []


def test_the_gateway_sends_its_test_questions_without_storing_them(
    start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.02)
    gateway = start_gateway(memory=True)
    gateway.store.versions.weights_live(-1, gateway.engine.version, None, True, None, None)
    bad = gateway.says("1. hi")
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO, "user": "ada"})
    turn = gateway.turn(answer.json()["id"])
    wish = gateway.tokenizer.encode(WISH)
    gateway.says("hi")
    gateway.engine.forget_prompts()

    def score(ids: list[int], start: int) -> float:
        wished = any(ids[at : at + len(wish)] == wish for at in range(start))
        return -9.0 if wished and ids[start + 1 :] == bad else -1.0

    gateway.engine.score = score
    gateway.store.turns.answer(turn.id, [{"role": "user", "content": WISH}])
    found = [Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=[WISH])]
    assert gateway.store.judgements.finish(turn.id, found, Drop("test"))
    (held,) = gateway.wait_for(
        lambda: [one for one in gateway.store.memory.wishes() if one.held_by is not None], timeout_s=60
    )
    assert (held.held_by, held.details["asked"], held.in_prompt) == (gateway.engine.version, 35, False)
    assert gateway.store.status.counts()["turns"] == {"judged": 1}


def test_a_question_that_requests_a_form_is_not_used_for_another_form(
    asked_for: RolloutStore, make_turn: Callable[..., NewTurn], chat_format: ChatFormat
) -> None:
    listed = [{"role": "user", "content": "What is 2 + 2? As a list, please."}]
    for _ in range(40):
        asked_for.turns.record(make_turn(person="ada", memory=[], messages=listed))
    weights = Weights(chat_format.tokenizer, lambda number: PROSE)
    look(asked_for, chat_format, weights)
    assert weights.asked == 0 and texts(asked_for) == [WISH]
    asked_for.turns.record(
        make_turn(person="ada", memory=[], messages=[{"role": "user", "content": "3 + 3?"}])
    )
    asked_for.versions.weights_live(0, 4, 3, False, None, None)
    weights.version = 4
    ((found,),) = look(asked_for, chat_format, weights)
    assert (weights.questions, found.count, texts(asked_for)) == ({"3 + 3?"}, Count(35, 35), [])


def test_a_preference_is_tested_with_the_questions_of_its_own_key(
    store: RolloutStore, make_turn: Callable[..., NewTurn], chat_format: ChatFormat
) -> None:
    store.versions.weights_live(-1, 3, None, True, None, None)
    for key in ("site", "bob"):
        asked = [{"role": "user", "content": f"a question of {key}"}]
        turn = store.turns.record(
            make_turn(person="carol", key_name=key, memory=[], messages=asked, completion_ids=LIST)
        )
        store.turns.answer(turn.id, [{"role": "user", "content": WISH}])
        found = [Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=[WISH])]
        assert store.judgements.finish(turn.id, found, Drop("test"))
    weights = Weights(chat_format.tokenizer, lambda number: PROSE)
    canaries = Canaries(store, chat_format, weights)
    site = Asker("site", "carol")
    assert asyncio.run(canaries.due(3)) == [Asker("bob", "carol"), site]
    asyncio.run(canaries.look(site, 3))
    assert weights.questions == {"a question of site"}
    held = {wish.key_name: wish.held_by for wish in store.memory.wishes("carol")}
    assert held == {"site": 3, "bob": None}
