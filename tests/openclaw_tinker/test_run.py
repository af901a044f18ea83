"""`run.py`: flags over variables over defaults, and a driver's command that the driver takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openclaw_tinker.service import TinkerService, check_sdk, read_key
from openclaw_tinker.settings import SERVICE, TinkerFlags, base_url
from rented_run.flags import parse
from rented_run.words import driver_words
from slime.arguments import parse_args
from slime.errors import ConfigError
from slime.rented.service import ServiceSettings
from tests import MODEL, ROOT

HERE = ["--model-path", str(MODEL), "--model-name", "some/model"]


def words(tmp_path: Path, *given: str, env: dict[str, str] | None = None) -> list[str]:
    flags, rest = parse(TinkerFlags, "", [*HERE, *given], env or {})
    return [*driver_words(flags, SERVICE, base_url(env or {}), tmp_path, flags.model_name), *rest]


def args_of(tmp_path: Path, *given: str) -> Any:
    return parse_args(words(tmp_path, *given), {})


def test_flags_win_over_variables_and_these_over_defaults(tmp_path: Path) -> None:
    env = {"BATCH_SIZE": "8", "LORA_RANK": "16", "METHOD": "combine", "OPENCLAW_COMBINE_W_RL": "3"}
    flags, rest = parse(TinkerFlags, "", ["--lora-rank", "4", "--keep-versions", "5"], env)
    assert (flags.batch_size, flags.lora_rank, flags.method, flags.w_rl) == (8, 4, "combine", 3.0)
    assert (flags.loss_fn, flags.save_interval, flags.prm_m) == ("ppo", 20, 3)
    assert rest == ["--keep-versions", "5"]


@pytest.mark.parametrize("method", ["rl", "opd", "combine", "hybrid"])
def test_every_method_is_a_command_that_the_driver_takes(method: str, tmp_path: Path) -> None:
    args = args_of(tmp_path, "--method", method)
    assert (args.train_backend, args.rollout_backend, args.rented_model) == ("rented", "rented", "some/model")
    assert (args.lora_rank, args.rented_judge, args.kl_loss_coef, args.rented_loss) == (
        32,
        True,
        0.02,
        "exact",
    )
    assert args.teacher_source == ("inference" if method == "rl" else "trainer")


@pytest.mark.parametrize("loss", ["ppo", "importance_sampling", "cispo"])
def test_a_policy_loss_alone_is_one_pass_at_the_service(loss: str, tmp_path: Path) -> None:
    args = args_of(tmp_path, "--loss-fn", loss, "--kl-loss-coef", "0")
    assert args.rented_loss == loss
    assert args.use_rollout_logprobs


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--method", "grpo"], "no method 'grpo'"),
        (["--loss-fn", "dpo"], "no --loss-fn 'dpo'"),
        (["--loss-fn", "cispo", "--method", "opd"], "take ppo"),
        (["--loss-fn", "importance_sampling"], "--kl-loss-coef 0"),
        (["--teacher-model-name", "another/model"], "the base model"),
        (["--resume"], "no checkpoint to go on with"),
        (["--batch-size", "0"], "--batch-size 0"),
        (["--api-key", "secret"], "SGLANG_API_KEY"),
        (["--model-path", "/nowhere"], "holds no config.json"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(given: list[str], named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        words(tmp_path, *given)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value) and "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, ""),
        ({"TINKER_BASE_URL": "http://a"}, "http://a"),
        ({"TINKER_ENDPOINT": "http://b"}, "http://b"),
        ({"TINKER_ENDPOINT": "http://cluster:8265"}, ""),
        ({"TINKER_BASE_URL": "http://a", "TINKER_ENDPOINT": "http://b"}, "http://a"),
    ],
)
def test_an_endpoint_that_is_rays_is_not_taken_for_the_service(env: dict[str, str], url: str) -> None:
    assert base_url(env) == url


def test_a_state_at_the_service_or_a_checkpoint_can_be_begun_with(tmp_path: Path) -> None:
    assert "--rented-state" in words(tmp_path, "--resume-from-ckpt", "tinker://run/weights/step_0020")
    assert "--load" in words(tmp_path, "--resume-from-ckpt", "runs/old/checkpoints/checkpoint-3")


def test_a_key_is_needed_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="no key"):
        read_key()
    monkeypatch.setenv("TINKER_API_KEY", "hunter2")
    with pytest.raises(ConfigError) as refusal:
        read_key()
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(("found", "fine"), [("0.25.0", True), ("0.25.3", True), ("0.38.0", False)])
def test_an_sdk_that_was_not_tried_is_refused(
    found: str, fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slime.rented.sdk.version", lambda name: found)
    if fine:
        check_sdk()
        return
    with pytest.raises(ConfigError, match=r"0\.25\.x was tried"):
        check_sdk()


def test_a_reduction_that_no_server_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slime.rented.sdk.version", lambda name: "0.25.0")
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    monkeypatch.setenv("TINKER_LOSS_REDUCTION", "median")
    with pytest.raises(ConfigError, match="TINKER_LOSS_REDUCTION"):
        TinkerService(ServiceSettings("some/model"))


def test_a_run_without_a_key_ends_before_anything_starts(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
    run = [
        sys.executable,
        str(ROOT / "openclaw-tinker" / "run.py"),
        *HERE,
        "--record-dir",
        str(tmp_path / "run"),
    ]
    ended = subprocess.run(run, capture_output=True, text=True, env=env, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
