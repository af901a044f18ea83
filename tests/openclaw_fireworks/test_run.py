"""`run_openclaw_fireworks.py`: settings specific to Fireworks; common ones are in tests/launch/rented_run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openclaw_fireworks.account import api_url, refusals
from openclaw_fireworks.settings import FireworksFlags, words_for
from rented_run.flags import parse
from slime.arguments import parse_args
from slime.errors import ConfigError
from tests import MODEL

HERE = ["--model-path", str(MODEL)]


def words(tmp_path: Path, *given: str, env: dict[str, str] | None = None) -> list[str]:
    flags, rest = parse(FireworksFlags, "", [*HERE, *given], env or {})
    return [*words_for(flags, tmp_path, env or {}), *rest]


def args_of(tmp_path: Path, *given: str, env: dict[str, str] | None = None) -> Any:
    return parse_args(words(tmp_path, *given, env=env), {})


def test_the_judge_is_the_base_model_without_a_deployment(tmp_path: Path) -> None:
    args = args_of(tmp_path)
    assert args.rented_url == "https://api.fireworks.ai"
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
    ],
)
def test_invalid_settings_are_rejected_in_one_line(
    given: list[str], env: dict[str, str], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refusal:
        args_of(tmp_path, *given, env=env)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_multi_line_errors_of_the_sdk_become_one_line() -> None:
    with pytest.raises(ConfigError) as refusal, refusals("Fireworks cannot rent"):
        raise RuntimeError("\nTrainer failed\n  because of capacity\nSee the console")
    assert str(refusal.value) == "Fireworks cannot rent: Trainer failed because of capacity"


def test_the_services_own_address_is_the_default() -> None:
    assert api_url({}) == "https://api.fireworks.ai"
