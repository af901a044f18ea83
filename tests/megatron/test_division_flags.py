"""What the flags of the Megatron backend refuse before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slime.arguments import Arguments, parse_args
from slime.errors import ConfigError


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    (tmp_path / "prompts.jsonl").write_text('{"input": "1+1=", "label": "2"}\n')
    model = ["--hf-checkpoint", str(tmp_path), "--prompt-data", str(tmp_path / "prompts.jsonl")]
    return [*model, "--disable-rewards-normalization"]


def parse(words: list[str], flags: str) -> Arguments:
    return parse_args([*words, *flags.split()], env={})


def test_ranks_of_a_model_and_its_copies_make_the_processes(words: list[str]) -> None:
    args = parse(words, "--train-backend megatron --num-train-processes 8 --tp 2 --pp 2")
    assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (2, 2)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--tp 2", "this is --train-backend fsdp"),
        ("--train-backend megatron --tp 2", "1 training processes do not divide into models of 2"),
        (
            "--train-backend megatron --tp 2 --cp 2 --num-train-processes 6",
            "6 training processes do not divide",
        ),
        ("--train-backend megatron --tp 0", "must be 1 or more"),
        ("--train-backend megatron --tp 2 --num-train-processes 2 --sequence-parallel", "needs GPUs"),
        ("--train-backend megatron --use-lora", "adapters are there with --train-backend fsdp only"),
        ("--train-backend megatron --freeze-params-name-list embed", "joined in other matrices"),
        ("--train-backend megatron --log-probs-chunk-size 64", "cut the logits by"),
        ("--train-backend megatron --advantage-estimator ppo", "has a critic"),
    ],
)
def test_what_the_backend_cannot_do_is_refused_with_the_reason(
    words: list[str], flags: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse(words, flags)


def test_without_the_package_the_error_says_what_to_install(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slime.arguments.check_parallel.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install --no-deps megatron-core=="):
        parse(words, "--train-backend megatron")
