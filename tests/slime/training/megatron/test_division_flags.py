"""Tests rejections of the Megatron backend's flags before anything starts."""

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


def test_the_number_of_processes_is_model_parallel_size_times_replicas(words: list[str]) -> None:
    args = parse(words, "--train-backend megatron --num-train-processes 8 --tp 2 --pp 2")
    assert (args.tensor_model_parallel_size, args.pipeline_model_parallel_size) == (2, 2)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--tp 2", "this run uses --train-backend fsdp"),
        ("--train-backend megatron --tp 2", "1 training processes are not divisible by 2 ranks per model"),
        (
            "--train-backend megatron --tp 2 --cp 2 --num-train-processes 6",
            "6 training processes are not divisible",
        ),
        ("--train-backend megatron --tp 0", "must be 1 or more"),
        (
            "--train-backend megatron --decoder-last-pipeline-num-layers 2",
            "needs --pipeline-model-parallel-size",
        ),
        ("--ep 2", "this run uses --train-backend fsdp"),
        (
            "--train-backend megatron --pp 2 --ep 4 --num-train-processes 4",
            "the 2 training processes of a pipeline stage are not divisible by",
        ),
        ("--train-backend megatron --expert-tensor-parallel-size 2", "experts are not split"),
        ("--train-backend megatron --moe-aux-loss-coeff 0.001", "no loss for balanced routing"),
        ("--train-backend megatron --use-rollout-routing-replay", "chooses its tokens' experts itself"),
        ("--train-backend megatron --tp 2 --num-train-processes 2 --sequence-parallel", "needs GPUs"),
        (
            "--train-backend megatron --use-lora --tp 2 --num-train-processes 2 --lora-dropout .1",
            "different inputs",
        ),
        ("--train-backend megatron --lora-modules-to-save norm", "only adapters are trained"),
        ("--use-distributed-optimizer", "this run uses --train-backend fsdp"),
        ("--train-backend megatron --optimizer-cpu-offload", "this run trains on the CPU"),
        ("--recompute-granularity full", "also needs --recompute-method"),
        ("--recompute-granularity full --recompute-method uniform", "also needs --recompute-num-layers"),
        (
            "--recompute-granularity full --recompute-method block --recompute-num-layers 2",
            "use --gradient-checkpointing",
        ),
        ("--train-backend megatron --recompute-method block", "needs --recompute-granularity full"),
        ("--train-backend megatron --recompute-modules mlp", "needs --recompute-granularity selective"),
        (
            "--train-backend megatron --recompute-granularity selective --recompute-modules mlp,norm",
            "--recompute-modules norm: must be one of core_attn, mlp",
        ),
        (
            "--train-backend megatron --recompute-granularity selective --gradient-checkpointing",
            "recomputes every layer",
        ),
        ("--train-backend megatron --freeze-params-name-list embed", "joined matrices do not match"),
    ],
)
def test_unsupported_flags_of_the_backend_are_rejected_with_the_reason(
    words: list[str], flags: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse(words, flags)


@pytest.mark.parametrize("backend", ["fsdp", "megatron"])
def test_megatrons_full_recomputation_flags_enable_gradient_checkpointing(
    words: list[str], backend: str
) -> None:
    flags = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    assert parse(words, f"--train-backend {backend} {flags}").gradient_checkpointing


def test_a_missing_package_is_reported_by_name(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slime.arguments.rules.parallel.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install --no-deps megatron-core=="):
        parse(words, "--train-backend megatron")
