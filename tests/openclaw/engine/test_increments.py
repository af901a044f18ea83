"""Streams whose events carry only new tokens give the ids, log-probs and versions of streams that repeat everything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from openclaw.engine.client import SKIPPED, EngineClient, StreamedAnswers
from openclaw.engine.generation import EngineRequest, Generation
from openclaw.errors import ClientError, EngineError
from tests.fakes.scripted_engine import FakeEngine

SAID = [*range(100, 130), 2]
SAMPLING = {"temperature": 1.0}


def increment(ids: list[int], count: int, **more: object) -> bytes:
    scores = [[-token / 100, token, None] for token in ids]
    meta = {"completion_tokens": count, "output_token_logprobs": scores, "finish_reason": None, **more}
    return orjson.dumps({"text": "x", "output_ids": ids, "meta_info": meta})


@pytest.fixture(params=[False, True], ids=["whole", "increments"])
def engine(request: pytest.FixtureRequest) -> Iterator[FakeEngine]:
    found = FakeEngine(say=list(SAID), incremental=request.param).start()
    yield found
    found.end()


def generated(
    engine: FakeEngine, top: int = 2, sampling: dict[str, Any] = SAMPLING, joins: bool = False
) -> tuple[Generation, list[Any]]:
    async def run() -> tuple[Generation, list[Any]]:
        client = EngineClient([engine.url])
        client.joining |= {engine.url} if joins else set()
        asked = EngineRequest("r", [5, 6], 60, sampling, frozenset({2}), top_log_probs=top)
        generation = Generation(client, asked, "session")
        try:
            best = [pairs async for one in generation.run() for pairs in one.top]
        finally:
            await client.close()
        return generation, best

    return asyncio.run(run())


@pytest.mark.parametrize("chunk", [1, 4])
def test_an_answer_is_the_same_in_all_streaming_modes(engine: FakeEngine, chunk: int) -> None:
    engine.chunk, engine.switch_after = chunk, 9
    generation, best = generated(engine)
    assert (generation.ids, generation.finish_reason, generation.matched) == (SAID, "stop", 2)
    assert generation.log_probs == [FakeEngine.log_prob(3 + at, token) for at, token in enumerate(SAID)]
    assert generation.spans == [(3, 0, 9), (4, 9, len(SAID))]
    assert [pairs[0] for pairs in best] == [(-0.5, token) for token in SAID]


def test_an_answer_that_may_be_a_call_and_follows_no_schema_keeps_its_id(engine: FakeEngine) -> None:
    async def run() -> None:
        client = EngineClient([engine.url])
        asked = EngineRequest("r", [5, 6], 60, SAMPLING, frozenset({2}), call_id=7)
        assert [one async for one in Generation(client, asked, "session").run()]
        await client.close()

    asyncio.run(run())
    assert [one["rid"] for one in engine.requests] == ["r"]


def test_an_answer_continues_after_its_engine_died(engine: FakeEngine) -> None:
    engine.die_after, engine.pause = 11, 0.01
    generation, _ = generated(engine)
    assert generation.ids == SAID and len(engine.requests) == 2
    assert engine.requests[1]["input_ids"][2:] == SAID[: len(engine.requests[1]["input_ids"]) - 2]
    assert generation.log_probs == [FakeEngine.log_prob(3 + at, token) for at, token in enumerate(SAID)]


def test_an_answer_that_follows_a_schema_resumes_only_on_an_engine_that_resumes_grammars(
    engine: FakeEngine,
) -> None:
    engine.die_after, engine.pause = 11, 0.01
    schema = {**SAMPLING, "json_schema": "{}"}
    generated(engine, sampling=schema, joins=True)
    first, second = engine.requests
    assert "resumed_tokens" not in first
    assert second["resumed_tokens"] == len(second["input_ids"]) - 2 > 0
    engine.die_after = 11
    with pytest.raises(ClientError, match="cannot be continued") as caught:
        generated(engine, sampling=schema)
    assert caught.value.status == 503


def test_all_increments_of_one_read_are_used() -> None:
    reader = StreamedAnswers()
    got = reader.read(
        [increment([1], 1), increment([2, 3], 3), increment([], 3, finish_reason={"type": "stop"})]
    )
    assert (got["output_ids"], got[SKIPPED]) == ([1, 2, 3], 0)
    assert [entry[1] for entry in got["meta_info"]["output_token_logprobs"]] == [1, 2, 3]
    assert got["meta_info"]["finish_reason"] == {"type": "stop"}


def test_increments_are_recognised_from_the_second_event_on() -> None:
    reader = StreamedAnswers()
    assert [reader.read([one])[SKIPPED] for one in (increment([1], 1), increment([2, 3], 3), increment([4], 4))] == [
        0, 1, 3,
    ]  # fmt: skip


def test_the_last_event_of_an_aborted_stream_repeats_one_id_and_all_log_probs() -> None:
    """As SGLang 0.5.23 ends it (`TokenizerManager._handle_abort_req`)."""
    reader = StreamedAnswers()
    reader.read([increment([1], 1)])
    reader.read([increment([2, 3], 3)])
    scores = [[-0.1, token, None] for token in (1, 2, 3)]
    end = increment([3], 3, output_token_logprobs=scores, finish_reason={"type": "abort", "message": "no"})
    got = reader.read([end])
    assert (got["output_ids"], got[SKIPPED]) == ([3], 2)


def test_a_missing_increment_is_an_error() -> None:
    generation = Generation(
        EngineClient(["http://127.0.0.1:1"]), EngineRequest("r", [5], 60, SAMPLING, frozenset()), "s"
    )
    reader = StreamedAnswers()
    generation._take(reader.read([increment([1], 1)]))
    with pytest.raises(EngineError, match="skipped 2 ids of the answer"):
        generation._take(reader.read([increment([4], 4)]))
    assert generation.ids == [1]


def test_an_error_event_between_increments_is_raised() -> None:
    reader = StreamedAnswers()
    reader.read([increment([1], 1)])
    reader.read([increment([2], 2)])
    assert reader.read([orjson.dumps({"error": {"message": "gone", "code": 500}})])["error"]["code"] == 500
