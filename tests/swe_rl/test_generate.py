"""Tests the hooks: the source of environments, their processes, and the names of an episode's end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime.errors import ConfigError
from slime.types import Sample
from swe_rl import generate as hooks
from swe_rl.generate import SweFlags
from swe_rl.served import environment

HOSTS = "http://10.0.1.1:18081,http://10.0.1.2:18081"


def given(**flags: object) -> Any:
    return SimpleNamespace(**flags)


def test_for_remote_hosts_slime_starts_and_monitors_a_router(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    [router] = hooks.start(given(exec_server_urls=HOSTS, env_server_key_file=str(key)), {})
    words = " ".join(router["command"])
    assert f"-m slime.pool --pools {HOSTS} --port 18090 --key-file {key}" in words
    assert router["url"] == "http://127.0.0.1:18090" and router["health_path"] == "/healthz"
    flags = replace(SweFlags(), exec_server_urls=HOSTS, env_server_key_file=str(key))
    assert hooks.pool_of(flags) == router["url"] and hooks.key_of(flags) == "secret"


def test_an_existing_pool_gets_no_router_and_both_kinds_are_rejected() -> None:
    assert list(hooks.start(given(env_server_url="http://pool:1"), {})) == []
    assert hooks.environment_use(given(env_server_url="http://pool:1")) is None
    assert hooks.environment_use(given(parallel_envs=3)).parallel == 3  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="give one"):
        hooks.start(given(env_server_url="http://pool:1", exec_server_urls=HOSTS), {})
    with pytest.raises(ConfigError, match="No such file"):
        hooks.start(given(exec_server_urls=HOSTS, env_server_key_file="/nowhere/key"), {})


async def test_a_full_context_has_its_own_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ended(by: str) -> Any:
        async def play(*_: object) -> Sample:
            return Sample(metadata={"episode": {"ended_by": by, "exit_status": "step_limit"}})

        monkeypatch.setattr(hooks, "_agent", lambda flags: play)
        done = await hooks.generate(given(), Sample(), {})
        assert isinstance(done, Sample)
        return done.metadata["episode"]["exit_status"]

    assert await ended("context") == "context_overflow"
    assert await ended("answer") == "answer_too_long"
    assert await ended("turns") == "step_limit"


def test_a_remote_host_reads_the_same_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWE_STEP_TIMEOUT", "7")
    monkeypatch.setenv("SWE_STRICT_NO_TEST_PATCH", "0")
    made: Any = environment()
    assert made.step_seconds == 7 and not made.grader.policy.tests
