"""Tests that a broadcast between two versions of NCCL is rejected at the start, with the reason."""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime.engines.sglang.broadcast import Broadcast
from slime.engines.sglang.nccl import (
    LOCK,
    PREFIX,
    check_same_nccl,
    locked_packages,
    mismatch,
    nccl_mismatch,
    packages,
)
from slime.engines.sglang.sender import Meeting
from slime.errors import ConfigError
from slime.ray.servers import external, specs
from tests import ROOT

OLD = {"torch": "2.13.0", f"{PREFIX}cu13": "2.29.7"}
NEW = {"torch": "2.14.1", f"{PREFIX}cu13": "2.30.7"}


def other_python(folder: Path, nccl: str) -> str:
    """Returns a Python whose packages have this NCCL."""
    for name, version in (("torch", "2.14.1"), (f"{PREFIX}cu13", nccl)):
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_different_nccl_versions_are_reported_with_their_torch_versions() -> None:
    told = mismatch(OLD, NEW, "/opt/sglang/bin/python")
    assert (
        "NCCL 2.29.7 (torch 2.13.0)" in told and "2.30.7 (torch 2.14.1)" in told and "remove the flag" in told
    )
    assert mismatch(OLD, OLD, "") == mismatch({"torch": "2.13.0+cpu"}, NEW, "") == ""


def test_versions_in_an_engines_python_are_read_without_importing_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = other_python(tmp_path, "2.30.7")
    assert packages(python) == NEW
    monkeypatch.setattr("slime.engines.sglang.nccl.sys.executable", other_python(tmp_path / "own", "2.29.7"))
    with pytest.raises(ConfigError, match="NCCL cannot connect different versions"):
        check_same_nccl(python)


@pytest.mark.parametrize(
    ("ours", "named", "told"),
    [
        ("2.29.7", None, "by locks/sglang.txt"),
        ("2.30.7", None, ""),
        ("2.29.7", "2.29.7", ""),
        ("2.30.7", "2.29.7", "NCCL cannot connect different versions"),
    ],
)
def test_external_engines_are_assumed_to_have_the_locked_packages_unless_a_python_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str, named: str | None, told: str
) -> None:
    assert locked_packages(LOCK)[f"{PREFIX}cu13"] == locked("sglang")[f"{PREFIX}cu13"]
    theirs = {"torch": "2.14.1", f"{PREFIX}cu13": "2.30.7"}
    monkeypatch.setattr("slime.engines.sglang.nccl.locked_packages", lambda lock: theirs)
    python = other_python(tmp_path / "engine", named) if named else None
    monkeypatch.setattr("slime.engines.sglang.nccl.sys.executable", other_python(tmp_path / "own", ours))
    said = nccl_mismatch(python)
    assert told in said and bool(said) == bool(told)


@pytest.mark.parametrize(
    ("changes", "gloo"),
    [({}, True), ({"actor_num_gpus_per_node": 0}, False), ({"debug_train_only": True}, False)],
)
def test_engines_with_an_incompatible_nccl_get_their_weights_over_gloo(
    changes: dict[str, Any],
    gloo: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr("slime.engines.sglang.nccl.nccl_mismatch", lambda python: "two versions")
    monkeypatch.setattr(external, "engine_client", lambda *_, over_gloo: seen.append(over_gloo))
    usual: dict[str, Any] = {
        "run_dir": str(tmp_path),
        "debug_train_only": False,
        "rollout_external_engine_addrs": ["http://10.0.0.2:15000", "http://10.0.0.3:15000"],
        "actor_num_gpus_per_node": 4,
        "engine_python": None,
    }
    args: Any = SimpleNamespace(**(usual | changes))
    sender: Any = object()
    external.ExternalEngines(args, sender)
    assert seen == ([] if args.debug_train_only else [gloo] * 2)
    assert caplog.text.count("SGLANG_PYTHON") == int(gloo)


@pytest.mark.parametrize(("over_gloo", "backend"), [(False, "nccl"), (True, "gloo")])
def test_an_engine_with_an_incompatible_nccl_joins_a_gloo_group(
    over_gloo: bool, backend: str, tmp_path: Path
) -> None:
    orders: list[dict[str, Any]] = []
    done: Future[Any] = Future()
    done.set_result(Meeting("127.0.0.1", 1, "cuda"))
    sender: Any = SimpleNamespace(
        meet=lambda *_: done, join=lambda *_: done, leave=lambda: done, kill=lambda: None
    )

    def call(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        orders.extend([body] if body and "backend" in body else [])
        return {"tp_size": 1, "device": "cuda"}

    broadcast = Broadcast("http://10.0.0.2:1", sender, 1, 9.0, lambda version: tmp_path, over_gloo=over_gloo)
    broadcast.deadline = time.monotonic() + 9.0
    with broadcast.group(call):
        assert [order["backend"] for order in orders] == [backend]


@pytest.mark.parametrize(
    ("changes", "asked"),
    [({}, True), ({"update_weight_transport": "disk"}, False), ({"rollout_num_gpus": 0}, False)],
)
def test_nccl_versions_are_compared_at_the_start_of_a_gpu_broadcast_run(
    changes: dict[str, Any], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(specs, "check_same_nccl", seen.append)
    usual: dict[str, Any] = {
        "update_weight_transport": "nccl",
        "rollout_num_gpus": 2,
        "engine_python": "/opt/python",
        "engine_words": {},
    }
    args: Any = SimpleNamespace(**(usual | changes))
    specs.check_sglang(args)
    assert seen == (["/opt/python"] if asked else [])


@pytest.mark.parametrize(
    ("words", "told"), [([], True), (["--sglang-enable-deterministic-inference"], False)]
)
def test_the_log_reports_once_that_sglang_ignores_seeds_unless_configured(
    words: list[str], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    args: Any = SimpleNamespace(
        update_weight_transport="disk", rollout_num_gpus=2, engine_words={"rollout": words}
    )
    with caplog.at_level("INFO"):
        specs.check_sglang(args)
    lines = [line for line in caplog.messages if "seeds" in line]
    assert len(lines) == int(told)
    assert not told or "--sglang-enable-deterministic-inference" in lines[0]


def locked(name: str) -> dict[str, str]:
    """Returns the versions by package from a lock file."""
    lines = (ROOT / "instructions" / "locks" / f"{name}.txt").read_text().splitlines()
    pins = (line.split(";")[0].strip() for line in lines if line and not line.startswith("#"))
    return {package: version for package, _, version in (pin.partition("==") for pin in pins)}


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_locked_environments_use_nccl_if_their_versions_are_equal(name: str) -> None:
    trainer, engine = locked("trainer"), locked(name)
    same = trainer[f"{PREFIX}cu13"] == engine[f"{PREFIX}cu13"]
    assert (mismatch(trainer, engine, "") == "") == same
    assert {"sglang": "sglang", "vllm": "vllm"}[name] in engine


def test_locked_compiler_and_headers_have_the_same_cuda_version() -> None:
    pins = locked("sglang")
    parts = ("nvcc", "crt", "cccl", "runtime")
    assert {pins[f"nvidia-cuda-{part}"].rsplit(".", 1)[0] for part in parts} == {"13.0"}


@pytest.mark.parametrize(
    ("lock", "source"),
    [
        ("trainer", "requirements.txt"),
        ("sglang", "instructions/requirements-sglang.txt"),
        ("vllm", "instructions/requirements-vllm.txt"),
    ],
)
def test_a_lock_has_the_versions_of_its_requirements(lock: str, source: str) -> None:
    pins = locked(lock)
    for line in (ROOT / source).read_text().splitlines():
        name, equal, version = line.split("#")[0].strip().partition("==")
        if equal:
            package = name.split("[")[0].lower()
            found = pins.get(package, pins.get(package.replace("_", "-"), ""))
            assert found.startswith(version.rstrip("*")), line
