"""Tests a whole run under its supervisor: real Ray, trainer and engine; only the samples are made up."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from safetensors.torch import load_file

from claw_base.run_folder import records
from claw_base.run_folder.records import ProcessRecord
from slime import replay
from slime.processes import control
from slime.processes.servers import ServerManager
from slime.tracking.lines import brief
from slime.weights.checksum import weights_checksum
from tests import FAKES, ROOT

ROLLOUT = FAKES / "tiny_rollout.py"
SPARE, KEEPER = "spare", "keeper"
"""The role of an engine that waits to take over; it starts when there is time."""


@dataclass
class Run:
    run_dir: Path
    supervisor: subprocess.Popen[bytes]
    log: Path

    def record(self, name: str) -> ProcessRecord:
        record = records.read_record(self.run_dir, name)
        assert record is not None, f"no record of {name}"
        return record

    def live(self) -> list[dict[str, Any]]:
        path = self.run_dir / "live.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def engine_says(self) -> dict[str, Any]:
        answer = httpx.get(f"{self.record('engine-0').url}/model_info", trust_env=False).json()
        assert isinstance(answer, dict)
        return answer

    def eventually(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.supervisor.poll() is None and time.monotonic() < deadline, self.words()
            time.sleep(0.1)

    def wait_for_updates(self, count: int) -> None:
        """Returns after `count` more versions went live by training."""
        before = len(self.live())
        self.eventually(lambda: sum(not entry["restored"] for entry in self.live()[before:]) >= count)

    def words(self) -> str:
        logs = [self.log, *sorted((self.run_dir / "logs").glob("*.log"))]
        return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in logs)


def environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "slime"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "HF_HUB_OFFLINE": "1"}


def command(run_dir: Path, model_path: Path, port: int, program: str = "train_async.py") -> list[str]:
    driver = [sys.executable, str(ROOT / "slime" / program), "--run-dir", str(run_dir)]
    driver += ["--hf-checkpoint", str(model_path), "--backend", "embedded", "--train-backend", "fsdp"]
    driver += ["--rollout-function-path", f"{ROLLOUT}:generate_rollout", "--service-path", f"{ROLLOUT}:start"]
    driver += ["--on-weights-live-path", f"{ROLLOUT}:on_weights_live", "--disable-rollout-global-dataset"]
    driver += ["--rollout-batch-size", "2", "--disable-rewards-normalization", "--lr", "1e-3"]
    driver += ["--fake-port", str(port), "--seconds-a-batch", "0.3", "--save-interval", "1"]
    return [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(run_dir), "--", *driver]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model_path: Path) -> Iterator[Run]:
    run_dir = tmp_path_factory.mktemp("run")
    port = ServerManager(run_dir).choose_port("gateway")
    log = run_dir / "terminal.log"
    with log.open("wb") as output:
        supervisor = subprocess.Popen(
            [*command(run_dir, model_path, port), "--update-weight-transport", "tensor"],
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    yield Run(run_dir, supervisor, log)
    supervisor.terminate()
    assert supervisor.wait(30) == 0
    left = [record for record in records.read_records(run_dir) if record.alive()]
    assert left == [], "the supervisor stops everything that the run started"
    assert not control.scratch_dir(run_dir).exists() and not control.memory_dir(run_dir).exists()


def test_versions_go_live_in_order_and_match_the_engines(run: Run) -> None:
    run.eventually(lambda: len(run.live()) >= 3, 90)
    for shared in (control.scratch_dir(run.run_dir), control.memory_dir(run.run_dir)):
        assert stat.S_IMODE(shared.stat().st_mode) == 0o700, (
            "other users see neither Ray's sockets nor weights"
        )
    first, second, third = run.live()[:3]
    assert (first["version"], first["rollout_id"], first["restored"]) == (0, -1, True)
    assert [(v["version"], v["parent"], v["rollout_id"]) for v in (second, third)] == [(1, 0, 0), (2, 1, 1)]
    assert len({v["checksum"] for v in (first, second, third)}) == 3, "training changes the weights"
    says, entries = run.engine_says(), run.live()
    assert (int(says["weight_version"]), says["checksum"]) in [(e["version"], e["checksum"]) for e in entries]
    assert "rollout 0 | version 1 | batch 2" in run.log.read_text()
    roles = {record.role for record in records.read_records(run.run_dir) if record.alive()}
    assert roles - {SPARE, KEEPER} == {"driver", "trainer", "buffer", "engine", "gateway"}
    assert list((run.run_dir / "tensorboard").glob("events*"))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's /proc")
def test_only_engine_and_trainer_import_torch_and_servers_have_the_drivers_niceness(run: Run) -> None:
    run.eventually(lambda: len(run.live()) >= 2)
    live = [record for record in records.read_records(run.run_dir) if record.alive()]
    with_torch = {r.role for r in live if "libtorch" in Path(f"/proc/{r.pid}/maps").read_text()}
    assert with_torch - {SPARE, KEEPER} == {"engine", "trainer"}
    niceness = {record.role: psutil.Process(record.pid).nice() for record in live}
    assert niceness["engine"] == niceness["gateway"] == niceness["driver"] < niceness["trainer"]


def test_a_killed_trainer_resumes_from_its_checkpoint(run: Run) -> None:
    run.wait_for_updates(1)
    before = len(run.live())
    os.kill(run.record("trainer").pid, signal.SIGKILL)
    run.eventually(lambda: any(entry["restored"] for entry in run.live()[before:]))
    run.wait_for_updates(1)
    entries = run.live()
    [restored] = [entry for entry in entries[before:] if entry["restored"]]
    trained = [entry["rollout_id"] for entry in entries if not entry["restored"]]
    assert trained == list(range(len(trained))), "every rollout is trained once, in order"
    assert restored["rollout_id"] == entries[entries.index(restored) - 1]["rollout_id"]


def test_a_killed_rollout_manager_is_restarted_and_its_call_repeated(run: Run) -> None:
    buffer = run.record("buffer")
    os.kill(buffer.pid, signal.SIGKILL)
    run.eventually(lambda: run.record("buffer").pid != buffer.pid)
    run.wait_for_updates(2)


def test_a_killed_engine_restarts_with_the_live_version_on_its_port(run: Run) -> None:
    engine = run.record("engine-0")
    os.kill(engine.pid, signal.SIGKILL)
    run.eventually(lambda: run.record("engine-0").pid != engine.pid, 5)
    run.wait_for_updates(1)
    assert run.record("engine-0").url == engine.url
    assert int(run.engine_says()["weight_version"]) > 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_that_ends_is_replaced_by_one_that_adopts_the_servers(run: Run, how: int) -> None:
    run.eventually(run.live, 90)
    servers = {name: run.record(name).pid for name in ("engine-0", "gateway")}
    driver = run.record("driver")
    os.kill(driver.pid, how)
    run.eventually(lambda: run.record("driver").pid != driver.pid)
    run.wait_for_updates(1)
    assert {name: run.record(name).pid for name in servers} == servers
    versions = [entry["version"] for entry in run.live() if not entry["restored"]]
    assert versions == sorted(set(versions)), "numbers are never reused"


def test_the_synchronous_loop_skips_a_corrupt_batch_and_ends_after_its_rollouts(
    tmp_path: Path, model_path: Path
) -> None:
    port = ServerManager(tmp_path).choose_port("gateway")
    recorded = str(tmp_path / "rollout_{rollout_id}.json")
    flags = ["--num-rollout", "3", "--num-train-processes", "2", "--spoilt-rollout", "1", "--colocate"]
    flags += ["--eval-interval", "2", "--eval-function-path", f"{ROLLOUT}:evaluate"]
    flags += ["--save-debug-rollout-data", recorded, "--save-hf", str(tmp_path / "hf_{rollout_id}")]
    flags += ["--profile", "--profile-step-start", "2", "--profile-step-end", "3"]
    done = subprocess.run(
        command(tmp_path, model_path, port, "train.py") + flags,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert [(line["rollout_id"], line["version"]) for line in lines] == [(-1, 0), (0, 1), (1, 2), (2, 3)]
    sums = [line["checksum"] for line in lines]
    assert sums[0] != sums[1] == sums[2] != sums[3], "the spoilt batch changed nothing"
    assert "rollout 1 is skipped" in done.stderr
    scores = [line for line in done.stdout.splitlines() if line.startswith("evaluation")]
    assert scores == [f"evaluation {after} | tiny {brief(after / 2)}" for after in (0, 2, 3)]
    assert [len(replay.load(recorded, rollout_id)) for rollout_id in range(3)] == [2, 2, 2]
    assert weights_checksum(load_file(tmp_path / "hf_2" / "model.safetensors")) == sums[3]
    turns = re.findall(r"the GPU memory is now used by the (\w+)", done.stderr)
    assert turns == ["engines", *["trainers", "engines"] * 3]
    traces = sorted(path.name for path in (tmp_path / "profile").iterdir())
    assert traces == ["rollout_2_rank_0.json.gz", "rollout_2_rank_1.json.gz"]
    assert not [record for record in records.read_records(tmp_path) if record.alive()]


def test_two_pipeline_stages_of_megatron_train_what_the_engine_serves(
    tmp_path: Path, model_path: Path
) -> None:
    pytest.importorskip("megatron.core", reason="megatron-core is not installed: see requirements-dev.txt")
    port = ServerManager(tmp_path).choose_port("gateway")
    flags = ["--num-rollout", "2", "--train-backend", "megatron", "--num-train-processes", "2", "--pp", "2"]
    flags += ["--use-kl-loss", "--kl-loss-coef", "0.1"]
    done = subprocess.run(
        command(tmp_path, model_path, port, "train.py") + flags,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "live.jsonl").read_text().splitlines()]
    assert [(line["rollout_id"], line["version"]) for line in lines] == [(-1, 0), (0, 1), (1, 2)]
    sums = [line["checksum"] for line in lines]
    assert len(set(sums)) == 3, "training changes the weights"
    checkpoint = tmp_path / "checkpoints" / "checkpoint-2"
    assert weights_checksum(load_file(checkpoint / "model.safetensors")) == sums[2]
    assert json.loads((checkpoint / "meta.json").read_text())["backend"] == "megatron"


def test_rollouts_can_be_collected_without_training(tmp_path: Path, model_path: Path) -> None:
    port = ServerManager(tmp_path).choose_port("gateway")
    recorded = str(tmp_path / "{rollout_id}.json")
    flags = ["--num-rollout", "2", "--debug-rollout-only", "--save-debug-rollout-data", recorded]
    done = subprocess.run(
        command(tmp_path, model_path, port) + flags,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [len(replay.load(recorded, rollout_id)) for rollout_id in range(2)] == [2, 2]
    assert records.read_record(tmp_path, "trainer") is None and not (tmp_path / "live.jsonl").exists()
    assert "rollout 1 | batch 2" in done.stdout


def test_an_invalid_prompt_line_ends_the_run_and_is_reported(tmp_path: Path, model_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"input": "1+1="}\nno JSON\n')
    words = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(tmp_path), "--"]
    words += [
        sys.executable,
        str(ROOT / "slime" / "train.py"),
        "--run-dir",
        str(tmp_path),
        "--debug-train-only",
    ]
    words += ["--hf-checkpoint", str(model_path), "--prompt-data", str(tmp_path / "prompts.jsonl")]
    words += ["--disable-rewards-normalization"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, "starting it again" in done.stderr) == (2, False), done.stderr
    assert (
        done.stderr.splitlines()[-1]
        == f"error: {tmp_path}/prompts.jsonl:2: invalid JSON: Expecting value at column 1"
    )


def test_an_occupied_port_is_rejected_in_one_line_before_the_start(tmp_path: Path, model_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = subprocess.run(
            command(tmp_path, model_path, port), env=environment(), capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: port {port}, needed by the gateway"), done.stderr
    assert not (tmp_path / "logs").exists()
