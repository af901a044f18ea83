"""Tests that answers follow a JSON schema, with the exact log-probs of what was sampled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from tokenizers import Tokenizer

from slime.engines.embedded import grammar
from slime.engines.embedded.grammar import Grammars
from slime.engines.requests import RequestError
from tests.fakes.engine_process import Server
from tests.fakes.tiny_engine_model import EOS, VOCABULARY

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tests.slime.engines.conftest import LogProbsOf

SCHEMA = json.dumps({
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Oslo", "Lima"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}},
    "required": ["city", "days"],
    "additionalProperties": False,
})  # fmt: skip
PROMPT = [70, 90, 80, 120]


@pytest.fixture(scope="module")
def grammars(model_path: Path) -> Grammars:
    return Grammars(Tokenizer.from_file(str(model_path / "tokenizer.json")), VOCABULARY, {EOS})


@pytest.fixture(scope="module")
def tokenizer(model_path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_path / "tokenizer.json"))


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1.8])
def test_answers_of_a_random_model_follow_the_schema(
    server: Server, tokenizer: Tokenizer, temperature: float
) -> None:
    seen = set()
    for seed in range(12):
        answer = server.generate(
            PROMPT, max_new_tokens=80, temperature=temperature, seed=seed, json_schema=SCHEMA
        )
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": EOS}
        text = tokenizer.decode(answer["output_ids"])
        value = json.loads(text)
        assert value.keys() == {"city", "days"} and value["city"] in {"Paris", "Oslo", "Lima"}
        assert type(value["days"]) is int and 1 <= value["days"] <= 14
        seen.add(text)
    assert len(seen) > 3 or temperature == 0


def test_log_probs_are_of_the_distribution_over_the_allowed_tokens(
    server: Server, grammars: Grammars, reference: PreTrainedModel, log_probs_of: LogProbsOf
) -> None:
    answer = server.generate(
        PROMPT, max_new_tokens=80, temperature=0.7, seed=4, json_schema=SCHEMA, top_logprobs_num=5
    )
    ids = answer["output_ids"]
    table = log_probs_of(reference, PROMPT + ids, 0.7)
    grammar = grammars.of_schema(SCHEMA, [])
    expected = []
    for at, token in enumerate(ids):
        row = table[len(PROMPT) - 1 + at].masked_fill(~grammar.allowed(), -torch.inf)
        expected.append(torch.log_softmax(row, dim=-1)[token].item())
        assert grammar.advance(token) == ""
    values = [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]
    assert values == pytest.approx(expected, abs=2e-5)
    assert min(expected) < -0.5
    tops = answer["meta_info"]["output_top_logprobs"]
    assert all(entry[0] is not None for best in tops for entry in best)


def test_rows_without_a_schema_are_not_restricted(server: Server) -> None:
    options = {"max_new_tokens": 60, "temperature": 1.0, "seed": 11}
    alone = server.generate(PROMPT, **options)["output_ids"]
    stream = server.stream(PROMPT, max_new_tokens=200, seed=1, json_schema='{"type": "array"}')
    next(stream)
    beside = server.generate(PROMPT, **options)["output_ids"]
    for _ in stream:
        pass
    assert alone == beside


@pytest.mark.parametrize("count", [1, 9])
def test_a_resumed_answer_continues_the_json(server: Server, tokenizer: Tokenizer, count: int) -> None:
    options = {"max_new_tokens": 80, "temperature": 1.0, "json_schema": SCHEMA}
    whole = server.generate(PROMPT, seed=3, **options)["output_ids"]
    body = {
        "input_ids": PROMPT + whole[:count],
        "resumed_tokens": count,
        "sampling_params": {**options, "seed": 8},
    }
    rest = server.post("/generate", body).json()
    assert rest["meta_info"]["finish_reason"]["type"] == "stop"
    value = json.loads(tokenizer.decode(whole[:count] + rest["output_ids"]))
    assert value.keys() == {"city", "days"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_params": {"json_schema": "{"}}, "json_schema"),
        ({"sampling_params": {"json_schema": '{"type": "no such type"}'}}, "json_schema"),
        ({"sampling_params": {"json_schema": SCHEMA, "ignore_eos": True}}, "ignore_eos"),
        ({"sampling_params": {"json_schema": SCHEMA}, "resumed_tokens": 2}, "do not match the schema"),
        ({"resumed_tokens": 4}, "resumed_tokens"),
    ],
)
def test_what_cannot_be_restricted_is_refused(server: Server, change: dict, message: str) -> None:
    answer = server.post("/generate", {"input_ids": PROMPT, **change})
    assert answer.status_code == 400 and message in answer.text


def test_a_model_without_a_tokenizer_has_no_grammars() -> None:
    with pytest.raises(RequestError, match=r"tokenizer\.json"):
        Grammars(None, VOCABULARY, {EOS}).of_schema(SCHEMA, [])


def test_a_schema_whose_compilation_would_not_end_is_refused(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar, "COMPILE_SECONDS", 1)
    patterns = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{count}}}"} for count in range(10, 40)]
    with pytest.raises(RequestError, match="too complex"):
        grammars.of_schema(json.dumps({"allOf": patterns}), [])
    grammars.of_schema(json.dumps(patterns[0]), [])
