"""Long cumulative answers are read by their ends, and give what reading them as a whole gives."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openclaw.engine import client as cumulative_stream
from openclaw.engine.client import SKIPPED, CumulativeAnswers

TRICKS = ("plain", '"output_ids": [1, 2]', '],[]]"output_token_logprobs":[[', "\\", "[]", "\u2028", "🦀")


def chunk(ids: list[int], text: str, scores: bool, **more: object) -> dict[str, Any]:
    meta: dict[str, Any] = {"id": "r", "finish_reason": None, "completion_tokens": len(ids)}
    if scores:
        meta["output_token_logprobs"] = [[-((token * 7) % 97) / 13, token, None] for token in ids]
    return {"text": text, "output_ids": ids, "meta_info": {**meta, **more}}


def whole(
    answers: list[dict[str, Any]], write: Callable[[object], bytes]
) -> tuple[list[int], list[Any], list[Any]]:
    """(ids, log-probs, everything else) as somebody reads them who goes on where the last answer ended."""
    reader, ids, scores, rest = CumulativeAnswers(), list[int](), list[Any](), list[Any]()
    for answer in answers:
        got = reader.read(write(answer))
        have = len(ids) - got[SKIPPED]
        assert have >= 0
        ids += got["output_ids"][have:]
        scores += got["meta_info"].get("output_token_logprobs", [])[have:]
        rest.append((got["text"], {**got["meta_info"], "output_token_logprobs": None}))
    return ids, scores, rest


@pytest.mark.parametrize("write", [orjson.dumps, lambda value: json.dumps(value).encode()])
@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.integers(0, 5), min_size=2, max_size=12), text=st.sampled_from(TRICKS), scores=st.booleans(),
    numbers=st.sampled_from([(0, 9), (0, 150_000), (1, 1)]), short=st.booleans(),
)  # fmt: skip
def test_parsing_only_the_end_gives_the_same_as_parsing_the_whole_answer(
    write: Callable[[object], bytes],
    steps: list[int],
    text: str,
    scores: bool,
    numbers: tuple[int, int],
    short: bool,
) -> None:
    ids = [random.Random(1).randint(*numbers) for _ in range(100)]
    answers, at = [], 1 if short else 30
    for step in steps:
        at += step
        answers.append(chunk(ids[:at], text * at, scores, **({"note": "x"} if at % 2 else {})))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cumulative_stream, "READ_WHOLE_BYTES", 200)
        got = whole(answers, write)
    last = answers[-1]
    assert got[0] == last["output_ids"]
    assert got[1] == last["meta_info"].get("output_token_logprobs", [])
    assert got[2] == [
        (answer["text"], {**answer["meta_info"], "output_token_logprobs": None}) for answer in answers
    ]


def test_only_the_end_of_a_long_answer_is_parsed() -> None:
    reader, ids = CumulativeAnswers(), list(range(5000))
    reader.read(orjson.dumps(chunk(ids[:4000], "x", True)))
    got = reader.read(orjson.dumps(chunk(ids, "x", True)))
    assert (got[SKIPPED], got["output_ids"]) == (4000, ids[4000:])
    assert [entry[1] for entry in got["meta_info"]["output_token_logprobs"]] == ids[4000:]


@pytest.mark.parametrize(
    "other",
    [
        chunk([*range(3999), 7, 8], "x", True),
        chunk(list(range(100)), "x" * 9000, True),
        chunk(list(range(4001)), "x", False),
        chunk(list(range(4001)), "x", True, output_top_logprobs=[None] * 4001),
        {"output_ids": 5, "meta_info": {}, "text": "x" * 9000},
    ],
    ids=["other ids", "shorter", "no log-probs", "best tokens", "no list"],
)
def test_an_answer_that_does_not_continue_the_last_one_is_parsed_completely(other: dict[str, Any]) -> None:
    reader = CumulativeAnswers()
    reader.read(orjson.dumps(chunk(list(range(4000)), "x", True)))
    assert reader.read(orjson.dumps(other)) == {**other, SKIPPED: 0}


def test_invalid_json_is_an_error_even_in_the_middle() -> None:
    reader = CumulativeAnswers()
    data = orjson.dumps(chunk(list(range(4000)), "x", True))
    reader.read(data)
    with pytest.raises(orjson.JSONDecodeError):
        reader.read(data[:-1] + b",")
