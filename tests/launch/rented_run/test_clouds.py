"""Common behaviour of the providers: flags and variables become a driver's command, and invalid settings are one line
at the start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from claw_base.ports import free_port, listen
from openclaw_fireworks import account
from openclaw_fireworks import settings as fireworks
from openclaw_tinker import service
from openclaw_tinker import settings as tinker
from rented_run.flags import parse
from rented_run.main import Cloud, main
from slime.arguments import parse_args
from slime.errors import ConfigError
from slime.processes.supervisor import only_supervisor
from tests import MODEL, ROOT


@dataclass(frozen=True)
class Case:
    """One provider. `model`: its default base model; `tried`, `other`: tested and untested versions of its SDK."""

    cloud: Cloud
    words_for: Callable[[Any, Path, dict[str, str]], list[str]]
    check_sdk: Callable[[], None]
    read_key: Callable[[], str]
    program: str
    key: str
    bad_keys: tuple[str, ...]
    model: str
    tried: tuple[str, ...]
    other: tuple[str, ...]


CLOUDS = [
    Case(
        tinker.TINKER, tinker.words_for, service.check_sdk, service.read_key, "openclaw-tinker/run.py",
        "tml-x", ("", "hunter2"), "Qwen/Qwen3-4B-Instruct-2507", ("0.25.0", "0.25.3"), ("0.24.9", "0.38.0"),
    ),
    Case(
        fireworks.FIREWORKS, fireworks.words_for, account.check_sdk, account.read_key,
        "openclaw-fireworks/run_openclaw_fireworks.py",
        "fw_x", ("", "fw with spaces", "fw_\u00e9"), "accounts/fireworks/models/qwen3-8b", ("1.2.28", "1.2.30"),
        ("1.3.0", "0.9.1"),
    ),
]  # fmt: skip


@pytest.fixture(autouse=True)
def own_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", str(free_port()))


@pytest.fixture(params=CLOUDS, ids=lambda case: case.cloud.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def with_key(case: Case, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns a key; sets a tested SDK version."""
    monkeypatch.setattr("slime.rented.sdk.version", lambda name: case.tried[0])
    monkeypatch.setenv(f"{case.cloud.name.upper()}_API_KEY", case.key)
    return case.key


def args_of(case: Case, folder: Path, *given: str) -> Any:
    flags, rest = parse(case.cloud.flags, "", ["--model-path", str(MODEL), *given], {})
    return parse_args([*case.words_for(flags, folder, {}), *rest], {})


@pytest.mark.parametrize("method", ["rl", "opd", "combine", "hybrid"])
def test_the_driver_accepts_the_command_of_every_method(method: str, case: Case, tmp_path: Path) -> None:
    args = args_of(case, tmp_path, "--method", method)
    assert (args.train_backend, args.rollout_backend, args.rented_model) == ("rented", "rented", case.model)
    assert (args.lora_rank, args.rented_loss == "exact") == (
        32,
        method not in ("rl", "opd") or args.use_kl_loss,
    )
    assert args.teacher_source == ("inference" if method == "rl" else "trainer")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--method", "grpo"], "no method 'grpo'"),
        (["--resume"], "no checkpoint to resume from"),
        (["--batch-size", "0"], "--batch-size 0"),
        (["--api-key", "secret"], "SGLANG_API_KEY"),
        (["--model-path", "/nowhere"], "hf download Qwen/"),
        (["--prices", "/nowhere.json"], "cannot be read"),
        (["--max-cost", "5"], "--rented-prices"),
    ],
)
def test_invalid_settings_are_rejected_in_one_line(
    given: list[str], named: str, case: Case, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refusal:
        args_of(case, tmp_path, *given)
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value) and "secret" not in str(refusal.value)


def test_a_price_table_without_the_rented_model_is_rejected(case: Case, tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    table.write_text('{"another/model": {"prefill": 1, "sample": 1, "train": 1}}')
    with pytest.raises(ConfigError, match=f"no prices of {case.model}"):
        args_of(case, tmp_path, "--prices", str(table))


def test_wandb_can_be_disabled_by_a_variable(case: Case, tmp_path: Path) -> None:
    for env, wanted in (({}, True), ({"WANDB_DISABLED": "true"}, False)):
        flags, _ = parse(case.cloud.flags, "", ["--model-path", str(MODEL), "--wandb-project", "mine"], env)
        assert ("--use-wandb" in case.words_for(flags, tmp_path, {})) == wanted


def test_a_key_is_required_and_never_printed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in case.bad_keys:
        monkeypatch.setenv(f"{case.cloud.name.upper()}_API_KEY", key)
        with pytest.raises(ConfigError) as refusal:
            case.read_key()
        assert not key or key not in str(refusal.value)


def test_an_untested_sdk_version_is_rejected(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for found in case.tried:
        monkeypatch.setattr("slime.rented.sdk.version", lambda name, found=found: found)
        case.check_sdk()
    for found in case.other:
        monkeypatch.setattr("slime.rented.sdk.version", lambda name, found=found: found)
        with pytest.raises(ConfigError, match=r"\.x is tested"):
            case.check_sdk()


def test_a_run_without_a_key_ends_before_anything_starts(case: Case, tmp_path: Path) -> None:
    secret = f"{case.cloud.name.upper()}_"
    env = {name: value for name, value in os.environ.items() if not name.startswith(secret)}
    run = [
        sys.executable,
        str(ROOT / case.program),
        "--model-path",
        str(MODEL),
        "--record-dir",
        str(tmp_path / "run"),
    ]
    ended = subprocess.run(run, capture_output=True, text=True, env=env, timeout=240)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ") and ended.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_second_run_in_a_folder_is_rejected_before_anything_is_rented(
    case: Case, with_key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with only_supervisor(tmp_path):
        assert main(case.cloud, ["--model-path", str(MODEL), "--record-dir", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {tmp_path} is in use by the supervisor with pid {os.getpid()}")
    assert told.count("\n") == 1


def test_a_variable_can_request_a_dry_run(
    case: Case,
    with_key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DRY_RUN", "1")
    assert main(case.cloud, ["--model-path", str(MODEL), "--record-dir", str(tmp_path / "run")]) == 0
    assert "slime/train_async.py" in capsys.readouterr().out and not (tmp_path / "run").exists()


def test_an_unusable_port_or_folder_is_rejected_before_anything_is_rented(
    case: Case,
    with_key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ["--model-path", str(MODEL), "--dry-run"]
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        words = [*given, "--record-dir", str(tmp_path / "run")]
        assert main(case.cloud, [*words, "--proxy-host", "127.0.0.1", "--proxy-port", port]) == 2
        assert f"port {port} on 127.0.0.1 cannot be used" in capsys.readouterr().err
    monkeypatch.setenv("SGLANG_API_KEY", "x")
    assert main(case.cloud, [*words, "--proxy-host", "999.1.1.1"]) == 2
    assert "999.1.1.1 is neither an IP address nor a host name" in capsys.readouterr().err
    assert main(case.cloud, [*given, "--record-dir", "/proc/nope"]) == 2
    assert "/proc/nope cannot be created or written" in capsys.readouterr().err


def test_a_dry_run_shows_the_command_and_creates_nothing(
    case: Case, with_key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--model-path", str(MODEL), "--record-dir", str(tmp_path / "run"), "--dry-run"]
    assert main(case.cloud, given) == 0
    told = capsys.readouterr().out
    assert "slime/train_async.py" in told and with_key not in told
    assert not (tmp_path / "run").exists()
