"""Tests that common failures are reported at their place, with the flag to change."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from slime.errors import ConfigError
from slime.processes.known_failures import TROUBLES, explain, find, with_advice
from slime.processes.servers import ServerManager, ServerSpec
from slime.utils.memory_kills import MemoryKills

SAID = {
    "gpu_memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 18.55 GiB.",
    "no_compiler": "Capture cuda graph failed: Failed to build JIT module sgl_kernel_jit_fused_rope",
    "engine_graphs": "Capture cuda graph failed: CUDA out of memory.\n1. set --mem-fraction-static to a smaller value",
    "engine_memory": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "host_memory": "Task was killed due to the node running low on memory. ... ray::TrainActor out of memory (OOM)",
    "shared_memory": "OSError: [Errno 28] No space left on device: '/dev/shm/torch_1'",
    "disk_full": "a checkpoint could not be written: [enforce fail at container.cc:672] . unexpected pos 704 vs 598",
    "no_sglang": "ModuleNotFoundError: No module named 'sglang'",
    "engine_python": "ImportError: sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN3c104cuda",
    "architecture": "ValueError: Model architectures ['FooForCausalLM'] are not supported for now.",
    "context": "Warning: User-specified context_length (16384) is greater than the derived context_length (8192).",
    "tensor_parallel": "AssertionError: 14 is not divisible by tp_size 4",
    "no_kernel": "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "port": "[Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
    "ray_away": "ConnectionError: Failed to connect to Ray at address http://10.0.0.1:8265.",
    "ray_key": "RuntimeError: Authentication failed: 401 Unauthorized",
    "ray_version": "RuntimeError: Version mismatch: The cluster was started with: Ray: 2.40.0",
    "ray_room": "could not reserve these bundles within 60 s: [{'CPU': 1.0, 'GPU': 1.0}]",
    "ray_slow": "Exception: The current node timed out during startup. This could happen because the GCS is overloaded.",
    "ray_agent": "Request failed with status code 500: No available agent to submit job, please try again later.",
    "ray_package": "Package size (1.2GiB) exceeds the maximum size of 500.00MiB",
}


@pytest.mark.parametrize("name", [one.name for one in TROUBLES])
def test_each_known_failure_is_recognised_by_its_message(name: str) -> None:
    found = find(SAID[name])
    assert found is not None and found.name == name


@pytest.mark.parametrize(
    "said",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
        "RuntimeError: Ninja is required to load C++ extensions",
        "/usr/bin/ld: cannot find -lcuda: No such file or directory",
    ],
)
def test_missing_build_tools_of_kernels_are_recognised(said: str) -> None:
    found = find(said)
    assert found is not None and found.name == "no_compiler"


def test_unknown_failures_get_no_advice() -> None:
    settings = "server_args=ServerArgs(model_path='m', mem_fraction_static=0.8, host='127.0.0.1', port=30000)"
    assert explain(settings) == explain("KeyError: 'x'") == explain("the port is open") == ""
    assert with_advice("KeyError: 'x'") == "KeyError: 'x'"


def test_recommended_flags_exist() -> None:
    import re

    from claw_base.settings.declare import flags_of
    from slime.arguments import GROUPS

    flags = {name for group in GROUPS for item in flags_of(group) for name in item.options}
    others = {"--head", "--num-gpus", "--shm-size", "--working-dir"}
    advised = {flag for one in TROUBLES for flag in re.findall(r"--[a-z0-9-]+", one.advice)} - others
    engine = {flag for flag in advised if flag.startswith("--sglang-")}  # SGLang checks its own
    assert advised - engine <= flags, advised - engine - flags


def test_a_server_that_ends_while_it_starts_is_explained(tmp_path: Path) -> None:
    code = "print('Not enough memory. Please try to increase --mem-fraction-static.'); raise SystemExit(1)"
    spec = ServerSpec(
        "engine-0", "engine", [sys.executable, "-c", code], "http://127.0.0.1:9", start_timeout=30
    )
    manager = ServerManager(tmp_path)
    began = time.monotonic()
    with pytest.raises(
        ConfigError, match=r"(?s)engine-0 exited 3 times during its start.*-->.*MEM_FRACTION_STATIC"
    ):
        manager.start_all([spec])
    assert time.monotonic() - began < 20


def test_a_call_of_the_trainer_that_runs_out_of_memory_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.exceptions import RayTaskError

    from slime.ray.waiting import TaskFailed, get

    cause = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 18.55 GiB.\nsee the documentation")
    failed = RayTaskError("train", "traceback", cause)

    def fail(_reference: object) -> None:
        raise failed

    monkeypatch.setattr(ray, "get", fail)
    with pytest.raises(TaskFailed, match=r"(?s)training failed: OutOfMemoryError.*-->.*--max-tokens-per-gpu"):
        get(object(), "training")


def test_a_missing_ray_cluster_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    from slime.ray.runtime import join

    def fail(**_options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.")

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(ConfigError, match=r"(?s)RAY_ADDRESS auto cannot be joined.*-->.*ray start --head"):
        join("auto")


def test_an_address_without_a_listener_is_explained_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-m", "slime.ray.cluster", "--address", address]
        done = subprocess.run([*command, "--nodes", "1", "--gpus", "0"], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"error: RAY_ADDRESS {address} cannot be joined" in done.stderr
    assert "ray start --head" in done.stderr and "GCS" not in done.stderr


def test_a_job_that_cannot_be_submitted_is_explained(tmp_path: Path) -> None:
    """The output of `ray job submit` if no Ray answers."""
    submit = "import sys; from ray.scripts.scripts import main; sys.argv[0] = 'ray'; main()"
    words = ["job", "submit", "--address", "http://127.0.0.1:1", "--", "true"]
    said = subprocess.run([sys.executable, "-c", submit, *words], capture_output=True, text=True)
    assert said.returncode != 0
    assert "ray start --head" in explain(said.stdout + said.stderr)


def test_lack_of_host_memory_is_not_reported_as_gpu_memory() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60, dtype=torch.uint8)
    assert "out of CPU memory" in explain(str(refused.value))
    with pytest.raises(MemoryError) as plain:
        bytearray(2**60)
    assert "out of CPU memory" in explain(f"train failed: {plain.typename}: no message")


def test_a_killed_process_is_not_reported_as_out_of_memory() -> None:
    """Ray's message for every worker that is gone."""
    said = (
        "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
        "Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. "
        "(1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called."
    )
    assert explain(said) == ""
    assert "out of CPU memory" in explain("Out of memory: OOM-killed process 7 (python)")


def test_new_kernel_kills_are_detected(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    kills = MemoryKills([tmp_path / "absent", events])
    assert kills.news() == ""
    events.write_text("low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert "out of CPU memory" in explain(kills.news())
    assert kills.news() == "" and MemoryKills([tmp_path / "absent"]).news() == ""


def test_any_log_can_be_searched(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x\n" + SAID["gpu_memory"])
    command = [sys.executable, "-m", "slime.processes.known_failures", str(log)]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--gradient-checkpointing" in told.stdout
    command[-1] = str(tmp_path / "absent")
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 2 and "name a log file" in told.stderr and "Traceback" not in told.stderr
