"""`run.py`: settings specific to Tinker; common ones are in tests/launch/rented_run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openclaw_tinker.service import TinkerService
from openclaw_tinker.settings import TinkerFlags, base_url, words_for
from rented_run.flags import parse
from slime.arguments import parse_args
from slime.errors import ConfigError
from slime.rented.service import ServiceSettings
from tests import MODEL

HERE = ["--model-path", str(MODEL), "--model-name", "some/model"]


def words(tmp_path: Path, *given: str, env: dict[str, str] | None = None) -> list[str]:
    flags, rest = parse(TinkerFlags, "", [*HERE, *given], env or {})
    return [*words_for(flags, tmp_path, env or {}), *rest]


def args_of(tmp_path: Path, *given: str) -> Any:
    return parse_args(words(tmp_path, *given), {})


def test_flags_win_over_variables_and_these_over_defaults(tmp_path: Path) -> None:
    env = {"BATCH_SIZE": "8", "LORA_RANK": "16", "METHOD": "combine", "OPENCLAW_COMBINE_W_RL": "3"}
    flags, rest = parse(TinkerFlags, "", ["--lora-rank", "4", "--keep-versions", "5"], env)
    assert (flags.batch_size, flags.lora_rank, flags.method, flags.w_rl) == (8, 4, "combine", 3.0)
    assert (flags.loss_fn, flags.save_interval, flags.prm_m) == ("ppo", 20, 3)
    assert rest == ["--keep-versions", "5"]


@pytest.mark.parametrize("loss", ["ppo", "importance_sampling", "cispo"])
def test_a_pure_policy_loss_needs_one_pass_at_the_service(loss: str, tmp_path: Path) -> None:
    args = args_of(tmp_path, "--loss-fn", loss, "--kl-loss-coef", "0")
    assert args.rented_loss == loss
    assert args.use_rollout_logprobs


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--loss-fn", "dpo"], "no --loss-fn 'dpo'"),
        (["--loss-fn", "cispo", "--method", "opd"], "use ppo"),
        (["--loss-fn", "importance_sampling"], "--kl-loss-coef 0"),
        (["--teacher-model-name", "another/model"], "the base model"),
    ],
)
def test_invalid_settings_are_rejected_in_one_line(given: list[str], named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        words(tmp_path, *given)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)


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
def test_rays_endpoint_is_not_taken_for_the_service(env: dict[str, str], url: str) -> None:
    assert base_url(env) == url


def test_a_run_can_start_from_a_service_state_or_a_checkpoint(tmp_path: Path) -> None:
    assert "--rented-state" in words(tmp_path, "--resume-from-ckpt", "tinker://run/weights/step_0020")
    assert "--load" in words(tmp_path, "--resume-from-ckpt", "runs/old/checkpoints/checkpoint-3")


def test_an_unsupported_reduction_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slime.rented.sdk.version", lambda name: "0.25.0")
    monkeypatch.setenv("TINKER_API_KEY", "tml-x")
    monkeypatch.setenv("TINKER_LOSS_REDUCTION", "median")
    with pytest.raises(ConfigError, match="TINKER_LOSS_REDUCTION"):
        TinkerService(ServiceSettings("some/model"))
