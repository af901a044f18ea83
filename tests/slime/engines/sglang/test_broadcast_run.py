"""Tests a whole run with engines on other machines: Ray, trainer and the sending process are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from claw_base.settings.rules import check_flags
from slime.arguments import Arguments, parse_args
from slime.arguments.rules.engine import check_engine
from slime.engines.sglang.sender import own_address
from slime.errors import ConfigError, EngineError
from slime.processes import control
from slime.processes.servers import ServerManager
from slime.ray.placement import BundleSite
from slime.ray.servers.engine_clients import end_process
from slime.ray.servers.weight_sender import RaySender
from slime.weights.versions import artifact_folder
from tests import FAKES, ROOT
from tests.fakes.sglang import FakeSGLang, Running
from tests.fakes.tiny_engine_model import plain_model

ROLLOUT = FAKES / "tiny_rollout.py"
ELSEWHERE = "/models/of/another/machine"


@pytest.fixture
def engines(model_path: Path) -> Iterator[list[Any]]:
    torch.set_num_threads(1)
    running = [Running(FakeSGLang(model_path, plain_model, tp)) for tp in (1, 2)]
    for one in running:
        one.fake.path, one.fake.blind = ELSEWHERE, True
    yield running
    for one in running:
        one.close()


def test_engines_without_access_to_the_run_folder_serve_each_version(
    engines: list[Any], model_path: Path, tmp_path: Path
) -> None:
    driver = [sys.executable, str(ROOT / "slime" / "train.py"), "--run-dir", str(tmp_path)]
    driver += ["--hf-checkpoint", str(model_path), "--rollout-backend", "sglang", "--num-rollout", "2"]
    driver += ["--rollout-external-engine-addrs", *(one.url for one in engines)]
    driver += ["--update-weight-transport", "nccl", "--update-weight-buffer-size", "20000"]
    driver += ["--update-weight-disk-dir", str(tmp_path / "versions"), "--keep-weights", "1"]
    driver += ["--rollout-function-path", f"{ROLLOUT}:generate_rollout", "--disable-rollout-global-dataset"]
    driver += ["--on-weights-live-path", f"{ROLLOUT}:on_weights_live", "--disable-rewards-normalization"]
    driver += ["--rollout-batch-size", "2", "--lr", "1e-3"]
    driver += ["--fake-port", str(ServerManager(tmp_path).choose_port("gateway"))]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "slime"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(driver, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    live = [json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert [entry["version"] for entry in live] == [0, 1, 2]
    newest = load_file(artifact_folder(tmp_path / "versions", 2) / "model.safetensors")
    assert [path.name for path in (tmp_path / "versions").glob("v*")] == ["v000002"]
    for one in engines:
        labels = [call for call in one.fake.calls if call.startswith(("version", "update"))]
        assert labels[-2:] == ["version loading 2", "version 2"] and not any(
            "update" in call for call in labels
        )
        held = [dict(one.fake.model.named_parameters()), *one.fake.group.others]
        assert all(torch.equal(own[name], newest[name]) for own in held for name in newest)
        assert one.fake.path == ELSEWHERE and not one.fake.paused and one.fake.group.groups == {}
    assert "received version 2" in (tmp_path / "logs" / "training.log").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "the engines of --rollout-backend embedded read each version from its folder"),
        ({"rollout_backend": "sglang", "colocate": True}, "share a GPU, which NCCL does not support"),
        (
            {"rollout_backend": "sglang", "engine_words": {"rollout": ["--sglang-pp-size", "2"]}},
            "broadcasts with --pp-size",
        ),
        (
            {"rollout_backend": "sglang", "engine_words": {"rollout": ["--sglang-data-parallel-size=4"]}},
            "broadcasts with --data-parallel-size",
        ),
    ],
)
def test_engines_without_broadcast_support_are_rejected_at_the_start(
    flags: dict[str, Any], said: str
) -> None:
    args = Arguments(update_weight_transport="nccl")
    for name, value in flags.items():
        setattr(args, name, value)
    with pytest.raises(ConfigError, match=said):
        check_flags(args)
        check_engine(args)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--update-weight-buffer-size", "1000"], "it needs --update-weight-transport nccl"),
        (
            ["--update-weight-transport", "nccl", "--backend", "sglang", "--update-weight-buffer-size", "0"],
            "1 or more",
        ),
        (["--update-weight-mode", "delta"], "is sent to the engines as a whole"),
    ],
)
def test_flags_of_the_transport_work_or_are_rejected(
    model_path: Path, tmp_path: Path, flags: list[str], said: str
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"input": "1+1=", "label": "2"}\n')
    words = ["--hf-checkpoint", str(model_path), "--prompt-data", str(prompts)]
    with pytest.raises(ConfigError, match=said):
        parse_args([*words, "--disable-rewards-normalization", *flags], env={})


@pytest.mark.parametrize(
    ("machine", "engine", "found"),
    [
        ("this", "127.0.0.1", "127.0.0.1"),
        ("other", "127.0.0.1", "10.0.0.9"),
        ("other", "10.0.0.2", "10.0.0.2"),
    ],
)
def test_a_sender_on_another_machine_reaches_the_engines_on_the_drivers_machine(
    monkeypatch: pytest.MonkeyPatch, machine: str, engine: str, found: str
) -> None:
    monkeypatch.setattr("ray.util.get_node_ip_address", lambda: "10.0.0.9")
    placement = SimpleNamespace(sites={"actor": [BundleSite(0, "", None, machine)]}, here="this")
    asked: list[Any] = []
    sender = RaySender(Namespace(), placement)  # type: ignore[arg-type]
    monkeypatch.setattr(sender, "ask", lambda *words: asked.append(words))
    sender.meet(engine, 5.0)
    assert asked == [("meet", found, 5.0)]


def test_a_hanging_engine_of_the_run_is_stopped_but_an_external_one_is_not(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    record = control.spawn(tmp_path, "engine-0", "engine", command, None, dict(os.environ))
    end_process(tmp_path, None)()
    assert record.alive()
    end_process(tmp_path, "engine-0")()
    assert not record.alive()


def test_a_process_group_uses_an_address_reachable_from_the_engines_machine() -> None:
    assert own_address("127.0.0.1") == "127.0.0.1"
    with pytest.raises(
        EngineError, match=r"the machine that sends weights cannot reach no\.such\.machine\.invalid"
    ):
        own_address("no.such.machine.invalid")
