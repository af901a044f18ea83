"""Tests engines on several machines, on raylets with simulated GPUs and loopback addresses: they serve, get weights,
and one machine is lost and returns."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import ray
import torch
from ray._raylet import Config
from ray.cluster_utils import Cluster
from safetensors.torch import save_file

from claw_base.files import own_run_folder
from claw_base.run_folder import records
from slime.arguments import Arguments, parse_args
from slime.plan import dry_run
from slime.plan.gpu_split import split_of
from slime.plan.seats import Machine, seats_of
from slime.processes import control, nodes
from slime.processes.supervisor import stop_everything
from slime.ray.placement import Placement
from slime.ray.servers import engine_nodes
from slime.ray.servers.engine_clients import engine_client
from slime.ray.servers.engine_nodes import EngineNodes
from slime.ray.servers.specs import on_own_gpus, server_specs
from slime.ray.servers.watch_actor import WatcherHandle
from slime.rollout.engine_pool import EnginePool
from slime.rollout.state import engine_urls
from slime.weights.artifact import read_artifact
from slime.weights.update import Candidate, WeightUpdate
from slime.weights.versions import WeightVersion
from tests import FAKES, ROOT
from tests.fakes.dry_run import words_of

OTHER = "127.0.0.3"
SCRIPTS = {
    "swe-rl/run_swe_rl_8b_2nodes.sh": 2,
    "terminal-rl/terminal_qwen3_8b_prm_rl_2nodes.sh": 2,
    "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh": 2,
    "swe-rl/run_swe_rl_32b_4nodes.sh": 4,
    "swe-rl/run_swe_rl_4b_4nodes_colocate.sh": 4,
    "toolcall-rl/retool_qwen3_32b_rl.sh": 4,
    "swe-rl/run_swe_rl_8b_prm_5nodes.sh": 5,
    "toolcall-rl/retool_qwen3_32b_prm_rl.sh": 5,
    "swe-rl/run_swe_rl_32b_remote_8nodes.sh": 8,
}
"""Scripts for several machines, with the number of machines."""
OPTIONS: dict[str, Any] = {"num_cpus": 16, "num_gpus": 4, "object_store_memory": 80_000_000}


def known_to_ray(patch: pytest.MonkeyPatch) -> None:
    """Sets one token for all nodes; Ray read it when it was imported."""
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN", "one-token-for-all-nodes-of-this-test")
    patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "slime"), str(ROOT / "base"), str(ROOT)]))
    Config.initialize("")


def join(made: Cluster, **options: Any) -> Any:
    """Adds a node; Ray gives it 30 s to start, which a busy machine may exceed."""
    try:
        return made.add_node(**{**OPTIONS, **options})
    except Exception as error:  # Ray raises no more precise type
        pytest.skip(f"a node did not start in Ray's 30 s: {error}")


@contextlib.contextmanager
def cluster(soon: bool = True, **options: Any) -> Iterator[Cluster]:
    """Yields a cluster with the driver's node. `soon`: Ray detects the loss of another node soon."""
    made = Cluster()
    try:
        health = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500} if soon else {}
        join(made, include_dashboard=False, _system_config=health, **options)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def version(folder: Path, number: int) -> WeightVersion:
    """Writes a folder with one tensor, and the log-probs of an engine with these weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"vocab_size": 32}')
    save_file({"model.weight": torch.full((2,), float(number))}, folder / "model.safetensors")
    probe = {"ids": [1, 2, 3], "log_probs": [-number, -number], "dtype": "float32"}
    (folder / "probe.json").write_text(json.dumps(probe))
    return WeightVersion(number, str(folder), read_artifact(str(folder)).checksum)


def fake_python(folder: Path) -> str:
    """Creates a Python with an SGLang."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKES / "sglang_of_files.py"}" "$@"\n')
    python.chmod(0o755)
    return str(python)


def arguments(folder: Path) -> Arguments:
    python = fake_python(folder)
    (folder / "prompts.jsonl").write_text('{"text": "1+1", "label": "2"}\n')
    words = [
        "--hf-checkpoint", str(folder / "model"), "--run-dir", str(folder / "run"), "--rollout-backend", "sglang",
        "--engine-python", python, "--rollout-num-gpus", "6", "--rollout-num-gpus-per-engine", "2",
        "--prm-num-gpus", "2", "--prompt-data", str(folder / "prompts.jsonl"), "--rm-type", "math",
        "--n-samples-per-prompt", "2",
    ]  # fmt: skip
    return parse_args(words, {})


def eventually(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if condition():
                return
        assert time.monotonic() < deadline, f"{what}: not in {seconds:g} s"
        time.sleep(0.2)


def ask(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/server_info", trust_env=False).json()
    return found


def power_off(folder: Path) -> None:
    """Ends all processes on that machine except Ray at once."""
    for record in records.read_records(folder):
        control.terminate(record, grace=0.0)


class Load:
    """Requests of a rollout, in sequence from four clients; none may fail."""

    def __init__(self, args: Arguments) -> None:
        self.args = args
        self.answered: set[str] = set()

    async def run(self, until: Callable[[], bool], seconds: float = 60.0) -> set[str]:
        """Runs until the condition holds; returns the engines that answered."""
        pool = EnginePool(lambda: engine_urls(self.args))
        self.answered = set()
        deadline = time.monotonic() + seconds

        async def client() -> None:
            while not until() and time.monotonic() < deadline:
                answer = await pool.generate({"input_ids": [1]}, 60.0)
                self.answered.add(f"http://{answer['text']}")

        await asyncio.gather(*(client() for _ in range(4)))
        await pool._client().close()
        assert until(), f"not in {seconds:g} s"
        return self.answered


def test_engines_on_two_machines_serve_and_a_lost_machine_is_reused_when_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_to_ray(monkeypatch)
    monkeypatch.setattr("slime.ray.servers.specs.check_toolchain", lambda python: None)
    monkeypatch.setattr(engine_nodes, "LOOK_INTERVAL", 0.5)
    first = version(tmp_path / "model", 0)
    args = arguments(tmp_path)
    run_dir = Path(args.run_dir)
    own_run_folder(run_dir)
    with cluster() as made:
        other = join(made, node_ip_address=OTHER)
        ray.init(address=made.address, namespace="slime", logging_level="ERROR", log_to_driver=False)
        try:
            whole_life(args, run_dir, made, other, first)
        finally:
            ray.shutdown()  # otherwise the watchers restart stopped processes
            stop_everything(run_dir)
        assert not [one for one in records.read_records(nodes.folder_of(run_dir, OTHER)) if one.alive()]


def whole_life(args: Arguments, run_dir: Path, made: Cluster, other: Any, first: WeightVersion) -> None:
    placed = Placement(split_of(args))
    elsewhere = EngineNodes(args, placed, dict(os.environ))
    assert sorted(elsewhere.hosts) == ["engine-2", "judge-engine-0", "judge-engine-1"]
    specs = on_own_gpus(server_specs(args, elsewhere.hosts), placed, args)
    elsewhere.start(specs, None)
    here = [spec for spec in specs if not spec.machine]
    watcher = WatcherHandle(run_dir, here, elsewhere.env, 60.0)
    watcher.wait_ready()
    elsewhere.wait_ready()
    urls = {spec.name: str(spec.url) for spec in specs if spec.role in ("engine", "judge_engine")}
    assert sum(url.startswith(f"http://{OTHER}:") for url in urls.values()) == 3
    shown = {name: ask(url)["gpus"] for name, url in urls.items()}
    assert shown["engine-0"] != shown["engine-1"] and len(set(shown.values())) >= 3, shown

    controls = [
        engine_client(args, str(spec.url), None, own=spec.name) for spec in here if spec.role == "engine"
    ]
    announced: list[int] = []
    update = WeightUpdate(
        [], run_dir, lambda candidate: announced.append(candidate.weights.version), is_lost=elsewhere.is_lost
    )

    def publish(number: int) -> None:
        update.engines = [*controls, *elsewhere.present()]
        update.publish(Candidate(version(run_dir / "weights" / f"v{number:06d}", number), number, None))

    def versions() -> set[str]:
        infos = [httpx.get(f"{url}/model_info", trust_env=False).json() for url in engine_urls(args)]
        return {info["weight_version"] for info in infos}

    publish(1)
    assert versions() == {"1"} and len(engine_urls(args)) == 3
    load, there = Load(args), urls["engine-2"]
    assert asyncio.run(load.run(lambda: len(load.answered) == 3)) == set(engine_urls(args))

    # an engine that dies is replaced on its machine, and returns with the live weights
    pid = ask(there)["pid"]
    os.kill(pid, 9)
    asyncio.run(load.run(lambda: _alive_as_another(there, pid)))
    eventually(lambda: versions() == {"1"}, "the engine is back with version 1")

    # a watcher that dies there is replaced; its engines do not notice, and are watched again
    pid = ask(there)["pid"]
    [node] = elsewhere.nodes
    watching = ray.get(node.actor.pid.remote())
    os.kill(watching, 9)
    asyncio.run(load.run(lambda: _is_watched_by_another(node, watching)))
    assert ask(there)["pid"] == pid and versions() == {"1"}
    os.kill(pid, 9)
    asyncio.run(load.run(lambda: _alive_as_another(there, pid)))
    eventually(lambda: versions() == {"1"}, "the engine is back with version 1")

    # the machine is lost: the others answer, and an update does not wait for it
    folder = nodes.folder_of(run_dir, OTHER)
    made.remove_node(other, allow_graceful=False)
    power_off(folder)

    def is_left_out() -> bool:
        elsewhere.check_machines()
        return len(engine_urls(args)) == 2

    asyncio.run(load.run(is_left_out))
    began = time.monotonic()
    publish(2)
    assert time.monotonic() - began < 20 and versions() == {"2"}

    # the machine returns
    join(made, node_ip_address=OTHER)

    def is_back() -> bool:
        elsewhere.check_machines()
        return there in engine_urls(args) and there in load.answered

    asyncio.run(load.run(is_back))
    assert versions() == {"2"} and ask(urls["judge-engine-0"])["gpus"]
    publish(3)
    assert versions() == {"3"} and announced == [1, 2, 3]
    shutil.rmtree(first.path)


@pytest.fixture(scope="module")
def machines() -> Iterator[Callable[[int, int], None]]:
    """Yields a function that grows the cluster to a number of nodes with a number of GPUs each."""
    with pytest.MonkeyPatch.context() as patch:
        known_to_ray(patch)
        with cluster(soon=False, num_gpus=8) as made:
            ray.init(address=made.address, namespace="slime", logging_level="ERROR", log_to_driver=False)

            def grow(count: int, gpus: int) -> None:
                while (there := len(ray.nodes())) < count:
                    join(made, node_ip_address=f"127.0.0.{there + 2}", num_gpus=gpus)

            yield grow


@pytest.mark.parametrize("script", sorted(SCRIPTS, key=lambda script: SCRIPTS[script]))
def test_a_script_of_several_machines_serves_from_every_machine_with_engines(
    script: str, machines: Callable[[int, int], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slime.ray.servers.specs.check_toolchain", lambda python: None)
    machines(SCRIPTS[script], 8)
    version(tmp_path / "model", 0)
    words, env = words_of(script, HF_CKPT=str(tmp_path / "model"), RUN_DIR=str(tmp_path / "run"))
    given = [word for word, _ in dry_run.unmarked(words[words.index("--") + 1 :])]
    args = parse_args([*given, "--engine-python", fake_python(tmp_path)], env, packages=False)
    args.service_path, run_dir = [], Path(args.run_dir)
    own_run_folder(run_dir)
    placed, watchers = Placement(split_of(args)), []
    try:
        elsewhere = EngineNodes(args, placed, dict(os.environ))
        specs = on_own_gpus(server_specs(args, elsewhere.hosts), placed, args)
        elsewhere.start(specs, None)
        watcher = WatcherHandle(run_dir, [spec for spec in specs if not spec.machine], elsewhere.env, 60.0)
        watchers = [watcher.actor, *(node.actor for node in elsewhere.nodes)]
        watcher.wait_ready()
        elsewhere.wait_ready()
        answers = {spec.name: ask(str(spec.url)) for spec in specs}
        assert len([name for name in answers if name.startswith("engine-")]) == args.engine_count
        assert len(engine_urls(args)) == args.engine_count
        hosts = {urlsplit(str(spec.url)).hostname for spec in specs}
        seats = seats_of(placed.split, [Machine(node, 8) for node in placed.machines])
        assert len(hosts) == len({place for places in seats.engines.values() for place in places})
    finally:
        for actor in watchers:
            ray.kill(actor)
        placed.release_all()
        stop_everything(run_dir)


def _is_watched_by_another(node: engine_nodes.EngineNode, pid: int) -> bool:
    try:
        return bool(ray.get(node.actor.pid.remote(), timeout=0.2) != pid)
    except ray.exceptions.RayError:
        return False


def _alive_as_another(url: str, pid: int) -> bool:
    try:
        return bool(ask(url)["pid"] != pid)
    except httpx.HTTPError:
        return False
