"""Tests the rejections of a hook that names processes, and their messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw.errors import ConfigError as Refusal
from slime.errors import ConfigError
from slime.ray.servers import specs

HOOK = "my.services.start"


def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> str:
    def start(args: Any, endpoints: Any) -> Any:
        raise error

    load: Callable[..., Any] = lambda *_: start  # noqa: E731
    monkeypatch.setattr(specs, "load_path", load)
    args: Any = SimpleNamespace(
        debug_train_only=False, run_dir=tmp_path, rollout_external_engine_addrs=["http://127.0.0.1:1"],
        rollout_num_gpus=0, prm_num_gpus=0, prm_teacher_num_gpus=0, hf_checkpoint="model", rollout_backend="embedded",
        service_path=[HOOK], engine_count=0, rented_judge=False, gate=False,
    )  # fmt: skip
    with pytest.raises(ConfigError) as found:
        specs.server_specs(args)
    return str(found.value)


def test_a_configuration_error_of_a_hook_is_shown_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(tmp_path, monkeypatch, Refusal("port 30000 is taken")) == "port 30000 is taken"


def test_other_exceptions_of_a_hook_name_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(tmp_path, monkeypatch, KeyError("port")) == f"--service-path {HOOK}: 'port'"
