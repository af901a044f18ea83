"""`run_openclaw_fireworks.py`: upstream's variables, and a driver's command that the driver takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openclaw_fireworks.account import api_url, check_sdk, read_key, refusals
from openclaw_fireworks.settings import FireworksFlags, words_for
from rented_run.flags import parse
from slime.arguments import parse_args
from slime.errors import ConfigError
from tests import MODEL, ROOT

HERE = ["--model-path", str(MODEL)]


def words(tmp_path: Path, *given: str, env: dict[str, str] | None = None) -> list[str]:
    flags, rest = parse(FireworksFlags, "", [*HERE, *given], env or {})
    return [*words_for(flags, tmp_path, env or {}), *rest]


def args_of(tmp_path: Path, *given: str, env: dict[str, str] | None = None) -> Any:
    return parse_args(words(tmp_path, *given, env=env), {})


@pytest.mark.parametrize("method", ["rl", "opd", "combine", "hybrid"])
def test_every_method_is_a_command_that_the_driver_takes(method: str, tmp_path: Path) -> None:
    args = args_of(tmp_path, "--method", method)
    assert (args.train_backend, args.rollout_backend) == ("rented", "rented")
    assert (args.rented_model, args.rented_url) == (
        "accounts/fireworks/models/qwen3-8b",
        "https://api.fireworks.ai",
    )
    assert (args.judge_backend, args.judge_url, args.judge_model) == (
        "openai",
        "https://api.fireworks.ai/inference/v1",
        "accounts/fireworks/models/qwen3-8b",
    )
    assert not args.rented_judge, "the deployment's own answers drift"


def test_every_variable_of_the_original_has_its_effect(tmp_path: Path) -> None:
    env = {
        "FIREWORKS_BASE_URL": "https://gateway.example/", "BASE_MODEL": "accounts/a/models/m", "LORA_RANK": "8",
        "ROLLOUT_BATCH_SIZE": "6", "GRADIENT_ACCUMULATION": "2", "LEARNING_RATE": "3e-5", "W_OPD": "2", "W_RL": "3",
        "EPS_CLIP": "0.1", "EPS_CLIP_HIGH": "0.3", "WEIGHT_SYNC_INTERVAL": "2", "MAX_STEPS": "7", "MAX_SEQ_LEN": "4096",
        "SERVER_PORT": "30123", "PRM_M": "5", "PRM_TEMPERATURE": "0.2", "PRM_MAX_TOKENS": "99",
        "RECORD_DIR": str(tmp_path), "SERVED_MODEL_NAME": "mine",
    }  # fmt: skip
    args = args_of(tmp_path, env=env)
    assert (args.rented_url, args.rented_model, args.lora_rank) == (
        "https://gateway.example",
        "accounts/a/models/m",
        8,
    )
    assert (args.rollout_batch_size, args.num_steps_per_rollout, args.num_rollout) == (24, 2, 4)
    assert (args.lr, args.context_length, args.combine_w_opd, args.combine_w_rl) == (3e-5, 4096, 2, 3)
    assert (args.eps_clip, args.eps_clip_high, args.port, args.served_model_name) == (0.1, 0.3, 30123, "mine")
    assert (args.prm_m, args.prm_temperature, args.prm_max_new_tokens) == (5, 0.2, 99)
    assert args_of(tmp_path, env={"PRM_ENABLED": "0"}).judge_backend == "rules"
    assert args_of(tmp_path, "--method", "opd", env={"OPENCLAW_EVAL_MODE": "1"}).eval_mode == 1


@pytest.mark.parametrize(
    ("given", "env", "named"),
    [
        ([], {"LORA_RANK": "0"}, "second trainer"),
        ([], {"LORA_RANK": "many"}, "LORA_RANK"),
        (["--judge-backend", "engine"], {}, "a judge must not"),
        (["--gate"], {}, "one set of weights"),
        ([], {"TRAINING_SHAPE_ID": "qwen3-8b"}, "trainingShapes/NAME"),
        ([], {"DEPLOYMENT_ID": "Mine/1"}, "DEPLOYMENT_ID"),
        ([], {"FIREWORKS_BASE_URL": "api.fireworks.ai"}, "FIREWORKS_BASE_URL"),
        (["--model-path", "/nowhere"], {}, "Qwen/Qwen3-8B"),
        (["--method", "dpo"], {}, "no method 'dpo'"),
        (["--resume"], {}, "no checkpoint to go on with"),
        (["--prices", "/nowhere.json"], {}, "cannot be read"),
        (["--max-cost", "5"], {}, "--rented-prices"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    given: list[str], env: dict[str, str], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refusal:
        args_of(tmp_path, *given, env=env)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_prices_that_do_not_know_the_model_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    table.write_text('{"another/model": {"prefill": 1, "sample": 1, "train": 1}}')
    with pytest.raises(ConfigError, match="no price of accounts/fireworks/models/qwen3-8b"):
        args_of(tmp_path, "--prices", str(table))


@pytest.mark.parametrize("key", ["", "fw with spaces", "fw_\u00e9"])
def test_a_key_is_needed_and_never_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIREWORKS_API_KEY", key)
    with pytest.raises(ConfigError) as refusal:
        read_key()
    assert not key or key not in str(refusal.value)


@pytest.mark.parametrize(
    ("found", "fine"), [("1.2.28", True), ("1.2.30", True), ("1.3.0", False), ("0.9.1", False)]
)
def test_an_sdk_that_was_not_tried_is_refused(
    found: str, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slime.rented.sdk.version", lambda name: found)
    if fine:
        check_sdk()
        return
    with pytest.raises(ConfigError, match=r"1\.2\.x was tried"):
        check_sdk()


def test_what_the_sdk_says_in_many_lines_becomes_one() -> None:
    with pytest.raises(ConfigError) as refusal, refusals("Fireworks cannot rent"):
        raise RuntimeError("\nTrainer failed\n  because of capacity\nSee the console")
    assert str(refusal.value) == "Fireworks cannot rent: Trainer failed because of capacity"


def test_the_services_own_address_is_the_default() -> None:
    assert api_url({}) == "https://api.fireworks.ai"


def test_a_run_without_a_key_ends_before_anything_is_rented(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FIREWORKS_")}
    program = ROOT / "openclaw-fireworks" / "run_openclaw_fireworks.py"
    run = [sys.executable, str(program), *HERE, "--record-dir", str(tmp_path / "run")]
    ended = subprocess.run(run, capture_output=True, text=True, env=env, timeout=240)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
