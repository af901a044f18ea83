"""Tests that settings without support for a model at a service are rejected at start, in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slime.arguments import parse_args
from slime.errors import ConfigError
from tests import MODEL

COMMON = [
    "--hf-checkpoint",
    str(MODEL),
    "--disable-rewards-normalization",
    "--disable-rollout-global-dataset",
]
COMMON += ["--rollout-function-path", "openclaw.trainer_hooks.lease.generate_rollout"]
THERE = ["--train-backend", "rented", "--backend", "rented", "--rented-service", "some.module:Service"]


def parse(tmp_path: Path, *words: str) -> object:
    return parse_args([*COMMON, "--run-dir", str(tmp_path), *THERE, *words], {})


def test_a_rented_model_is_an_adapter_with_unpacked_sequences(tmp_path: Path) -> None:
    args = parse_args([*COMMON, "--run-dir", str(tmp_path), *THERE], {})
    assert (args.use_lora, args.lora_rank, args.micro_batch_size) == (True, 32, 1)
    assert args.rented_model == str(Path(MODEL).resolve())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--lora-alpha", "3"], "--lora-alpha"),
        (["--entropy-coef", "0.1"], "--entropy-coef"),
        (["--rollout-num-gpus", "1"], "--rollout-num-gpus"),
        (["--advantage-estimator", "ppo"], "critic"),
        (["--loss-spec-path", "openclaw_opd.loss:opd_topk", "--distill-topk", "4"], "likely ids"),
        (
            ["--loss-spec-path", "openclaw_combine.loss:topk_select", "--distill-topk", "4"],
            "likely ids",
        ),
        (
            ["--loss-spec-path", "openclaw_combine.loss:combine", "--teacher-guidance", "2"],
            "--teacher-guidance needs whole distributions",
        ),
        (["--train-backend", "fsdp"], "use rented for both"),
        (["--backend", "embedded"], "needs --rollout-backend rented"),
        (["--rented-service", ""], "needs --rented-service"),
        (["--rented-loss", "cispo"], "cispo needs cispo for both"),
        (["--rented-loss", "ppo", "--use-kl-loss", "--kl-loss-coef", "0.1"], "--kl-loss-coef asks for more"),
        (["--rented-loss", "ppo", "--use-tis"], "--use-tis asks for more"),
        (["--gate", "--gate-engine", "cpu"], "the weights stay at the service"),
        (["--max-cost", "3"], "--rented-prices"),
        (["--rented-prices", "/nowhere.json"], "cannot be read"),
    ],
)
def test_flags_unsupported_by_a_service_are_rejected_at_start(
    words: list[str], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse(tmp_path, *words)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({"other": {}}, "no prices of"),
        ({"own": {"prefill": 1}}, "needs prefill, sample, train"),
        ({"own": {"prefill": 1, "sample": -1, "train": 1}}, "must be numbers of dollars"),
    ],
)
def test_a_price_table_without_the_model_is_refused(
    table: dict[str, object], named: str, tmp_path: Path
) -> None:
    file = tmp_path / "prices.json"
    file.write_text(json.dumps(table))
    with pytest.raises(ConfigError, match=named):
        parse(tmp_path, "--rented-model", "own", "--rented-prices", str(file))
