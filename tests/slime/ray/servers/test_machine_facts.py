"""Tests the resources of a machine for the engines of a run, and rejections there. Without Ray."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from claw_base.run_folder.records import engine_urls, engines_file
from slime.errors import ConfigError
from slime.plan.model_servers import ModelServers
from slime.processes import nodes
from slime.ray.servers.engine_nodes import EngineNode, EngineNodes, NodeFacts, facts_here
from slime.ray.servers.specs import EngineHost, engine_spec


def facts(folder: Path, sign: Path) -> NodeFacts:
    return facts_here(folder, "127.0.0.1", [str(folder), "/no/model"], ["engine-1", "engine-2"], str(sign))


def test_a_machine_reports_missing_paths_and_free_ports(tmp_path: Path) -> None:
    sign = tmp_path / ".seen"
    sign.touch()
    found = facts(tmp_path, sign)
    assert found.sees_run and found.folder == nodes.folder_of(tmp_path, "127.0.0.1")
    assert found.lacks == ["/no/model"] and len(set(found.ports.values())) == 2
    apart = facts(tmp_path, tmp_path / "other")
    assert not apart.sees_run and not apart.folder.is_relative_to(tmp_path)


def machine(sees_run: bool, lacks: list[str], *engines: str) -> EngineNode:
    ports = dict.fromkeys(engines, 21000)
    return EngineNode("10.0.0.2", "id", list(engines), NodeFacts(Path("/f"), "/py", sees_run, lacks, ports))


def checked(node: EngineNode, backend: str, transport: str = "disk") -> EngineNodes:
    made: Any = EngineNodes.__new__(EngineNodes)
    made.args = SimpleNamespace(rollout_backend=backend, update_weight_transport=transport)
    made.run_dir, made.nodes = Path("/shared/run"), [node]
    made.check(node)
    return made


def test_a_missing_model_is_rejected_by_name() -> None:
    with pytest.raises(
        ConfigError, match=r"10\.0\.0\.2, which runs engine-1, lacks /models/x: put it on a shared file"
    ):
        checked(machine(True, ["/models/x"], "engine-1"), "sglang")


@pytest.mark.parametrize(
    ("engine", "backend", "refused"),
    [
        ("engine-1", "vllm", True),
        ("engine-1", "embedded", True),
        ("engine-1", "sglang", False),
        ("judge-engine-0", "vllm", False),
    ],
)
def test_engines_without_access_to_the_run_folder_need_a_broadcast(
    engine: str, backend: str, refused: bool
) -> None:
    node = machine(False, [], engine)
    if refused:
        with pytest.raises(ConfigError, match="cannot access /shared/run, from which engines of"):
            checked(node, backend)
    else:
        checked(node, backend)


def test_a_remote_engine_listens_on_its_machines_address_and_has_its_own_folder(tmp_path: Path) -> None:
    args: Any = SimpleNamespace(
        run_dir=str(tmp_path), engine_port=0, rollout_backend="embedded", engine_threads=1, engine_start_limit=9.0,
        use_idle_processors=True, bf16=False,
        max_running_requests=None, context_length=None, chunked_prefill_size=None, prm_context_length=None,
    )  # fmt: skip
    server = ModelServers("rollout", "engine", "engine", "/model", 2, 1)
    host = EngineHost("fd00::2", tmp_path / "there", "/node/python", 21007, True)
    spec = engine_spec(args, server, 1, None, host)  # type: ignore[arg-type]
    assert (spec.name, spec.machine, spec.url) == ("engine-1", "fd00::2", "http://[fd00::2]:21007")
    assert spec.command[0] == "/node/python" and spec.command[spec.command.index("--host") + 1] == "fd00::2"
    assert str(tmp_path / "there" / "processes" / "engine-1") in spec.command
    assert "--use-idle-processors" not in spec.command  # it has GPUs
    on_cpu = engine_spec(args, replace(server, gpus=0), 1, None, host)  # type: ignore[arg-type]
    assert on_cpu.command[on_cpu.command.index("--threads") + 1] == "1"
    assert "--use-idle-processors" in on_cpu.command


def test_remote_engines_are_found_through_the_run_folder(tmp_path: Path) -> None:
    assert engine_urls(tmp_path) == []
    engines_file(tmp_path).write_text(json.dumps({"engine-1": "http://10.0.0.2:21000"}))
    assert engine_urls(tmp_path) == ["http://10.0.0.2:21000"]
