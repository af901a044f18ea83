"""The first start on a rented GPU machine: missing parts are reported before anything is installed or started."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.dry_run import dry
from tests.fakes.gpu_machine import GpuMachine

SCRIPT = "../openclaw-combine/run_qwen3_4b_openclaw_topk_select.sh"
ONE_GPU = "../openclaw-rl/run_qwen3_4b_openclaw_rl_1gpu.sh"
SLIME = ROOT / "slime"
CHECK = "instructions/check_gpu.sh"


@pytest.fixture
def machine(tmp_path: Path) -> GpuMachine:
    return GpuMachine(tmp_path)


def test_the_printed_command_installs_the_engine_and_starts_the_run(
    machine: GpuMachine, free_port: str
) -> None:
    done = machine.bash(SCRIPT, cwd=SLIME, PORT=free_port)
    assert done.returncode == 0, done.stderr
    assert "installing sglang in" in done.stderr
    installed, started = machine.calls()
    assert installed.startswith("trainer-sglang -m pip install") and "requirements-sglang.txt" in installed
    assert (
        started.startswith("trainer -m slime.processes.supervisor --run-dir") and "train_async.py" in started
    )
    assert started.endswith(f"SGLANG_PYTHON={machine.folder}/trainer-sglang/bin/python")
    machine.bash(SCRIPT, cwd=SLIME, PORT=free_port)
    assert sum("pip install" in call for call in machine.calls()) == 1, "once"


def test_without_a_key_only_this_machine_is_served(machine: GpuMachine, free_port: str) -> None:
    done = machine.bash(SCRIPT, cwd=SLIME, PORT=free_port, HOST="", SGLANG_API_KEY="")
    assert done.returncode == 0, done.stderr
    assert "for this machine only, on 127.0.0.1" in done.stderr
    assert "--host 127.0.0.1 " in machine.calls()[-1]
    done = machine.bash(SCRIPT, cwd=SLIME, PORT=free_port, HOST="", SGLANG_API_KEY="secret-of-this-test")
    assert "alone" not in done.stderr and "--host 0.0.0.0 " in machine.calls()[-1]
    done = machine.bash(SCRIPT, cwd=SLIME, PORT=free_port, HOST="0.0.0.0", SGLANG_API_KEY="")
    assert done.returncode == 2 and "open to others" in done.stderr


def test_an_engine_installed_by_the_user_is_not_changed(machine: GpuMachine, free_port: str) -> None:
    own = str(machine.folder / "trainer-sglang" / "bin" / "python")
    for words, env in (((), {"SGLANG_PYTHON": own}), (("--engine-python", "/own/python"), {})):
        assert machine.bash(SCRIPT, *words, cwd=SLIME, PORT=free_port, **env).returncode == 0
    assert not any("pip install" in call for call in machine.calls())


def test_an_engine_on_a_trainers_gpu_gets_small_working_memory(machine: GpuMachine, free_port: str) -> None:
    graphs = "--sglang-cuda-graph-max-bs-decode"
    for script, env, told in (
        (ONE_GPU, {}, f"--chunked-prefill-size 2048 {graphs} 16 "),
        (ONE_GPU, {"CHUNKED_PREFILL_SIZE": "512", "CUDA_GRAPH_MAX_BS": "4"}, f"512 {graphs} 4 "),
        (SCRIPT, {}, ""),
    ):
        done = machine.bash(script, cwd=SLIME, PORT=free_port, **env)
        assert done.returncode == 0, done.stderr
        started = machine.calls()[-1].replace("::script ", "")
        assert told in started and (graphs in started) == bool(told)


def test_a_single_gpu_connection_is_set_only_for_megatron(machine: GpuMachine, free_port: str) -> None:
    """FSDP needs several connections for concurrent gathers and computation."""
    for backend, connections in (("fsdp", ""), ("megatron", "1")):
        machine.bash(SCRIPT, cwd=SLIME, PORT=free_port, TRAIN_BACKEND=backend)
        assert f"connections={connections} " in machine.calls()[-1]


def test_incomplete_downloads_of_weights_are_reported_before_anything_is_installed(
    machine: GpuMachine,
) -> None:
    (machine.model / "model.safetensors").unlink()
    done = machine.bash(SCRIPT, cwd=SLIME)
    assert done.returncode == 2 and "no *.safetensors" in done.stderr and "hf download" in done.stderr
    assert machine.calls() == []


def test_a_cpu_build_of_torch_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    machine = GpuMachine(tmp_path, torch="2.13.0+cpu")
    done = machine.bash(SCRIPT, cwd=SLIME)
    assert done.returncode == 2 and machine.calls() == []
    assert "is a build for CPUs" in done.stderr and "--force-reinstall torch==" in done.stderr


def test_a_too_old_gpu_driver_is_rejected_before_the_installation(tmp_path: Path) -> None:
    machine = GpuMachine(tmp_path, driver="550.54.15")
    for env in ({}, {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1"}):
        done = machine.bash(SCRIPT, cwd=SLIME, **env)
        assert done.returncode == 2 and machine.calls() == []
        assert "the GPU driver is 550.54.15" in done.stderr and "cuda-compat-13-0" in done.stderr


def test_an_occupied_port_is_rejected_before_the_engine_is_installed(machine: GpuMachine) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        done = machine.bash(SCRIPT, cwd=SLIME, PORT=port)
        assert done.returncode == 2 and port in done.stderr and machine.calls() == []
        told = machine.bash(CHECK, PORT=port)
    assert f"missing  port {port}" in told.stdout and "set PORT to another one" in told.stdout


def test_missing_parts_of_a_bare_machine_are_reported_within_ten_seconds(
    machine: GpuMachine, tmp_path: Path
) -> None:
    slow = machine.folder / "bin" / "nvidia-smi"
    slow.write_text("#!/bin/sh\ntrap '' TERM\nsleep 60\n")
    began = time.monotonic()
    told = machine.bash(CHECK, VENV=str(tmp_path / "none"), HF_CKPT=str(tmp_path / "nowhere"))
    assert time.monotonic() - began < 30, "its own limit is 8 s, also where a driver hangs"
    assert told.returncode == 1 and "Killed" not in told.stderr
    for what in ("GPU", f"Python environment {tmp_path}/none", "SGLang in", "model in"):
        assert f"missing  {what}" in told.stdout
    assert "requirements-sglang.txt" in told.stdout and "hf download" in told.stdout


def test_a_slowly_loading_torch_is_not_taken_for_one_without_gpus(machine: GpuMachine) -> None:
    python = machine.folder / "trainer" / "bin" / "python"
    python.write_text("#!/bin/sh\ntrap '' TERM\necho torch 2.13.0\nsleep 60\n")
    told = machine.bash(CHECK).stdout
    assert "torch 2.13.0 took longer than" in told and "missing  torch" not in told


def test_a_dry_run_reports_gpus_and_a_too_old_driver(tmp_path: Path) -> None:
    told = GpuMachine(tmp_path, gpus=2, driver="535.104.05").bash(CHECK).stdout
    assert told.count("ok       GPU NVIDIA H100 80GB HBM3, 81559 MiB\n") == 2
    assert "missing  driver that is new enough (there is 535.104.05)" in told and "cuda-compat-13-0" in told
    assert "2 GPUs: run_qwen*.sh take 8" in told and "ok       model " in told


def test_missing_build_tools_of_an_engine_are_reported_with_their_packages(tmp_path: Path) -> None:
    machine = GpuMachine(tmp_path)
    engine = machine.folder / "trainer-sglang" / "bin" / "python"
    engine.write_text(
        f"""#!/bin/sh
case "$*" in
  *sgl_kernel*) echo "sglang 0.5.23"; exit 1 ;;
  *) printf '%s\\nFalse\\n' "{tmp_path}" ;;
esac
"""
    )
    python = machine.folder / "trainer" / "bin" / "python"
    python.write_text('#!/bin/sh\nexec python3 "$@"\n')
    told = machine.bash(CHECK).stdout
    assert f"ok       SGLang 0.5.23 ({engine})" in told
    assert "missing  for SGLang's kernels: no Python.h" in told and "python3-dev" in told
    assert "missing  sgl_kernel that loads" in told
    (tmp_path / "nvidia" / "cu13" / "bin").mkdir(parents=True)
    (tmp_path / "nvidia" / "cu13" / "bin" / "nvcc").write_text("")
    engine.write_text(engine.read_text().replace("False", "True"))
    told = machine.bash(CHECK).stdout
    assert "ok       for SGLang's kernels: nvcc" in told or "no ninja" in told


@pytest.mark.parametrize("name", ["COLOCATE", "MEGATRON", "ALLOW_NO_KEY"])
def test_boolean_variables_accept_several_words_and_reject_others(machine: GpuMachine, name: str) -> None:
    done = machine.bash(SCRIPT, cwd=SLIME, **{name: "2"})
    assert done.returncode == 2 and f"{name}=2: give 1 for yes, 0 for no" in done.stderr
    plans = [dry("openclaw-rl/run_qwen3_4b_openclaw_rl.sh", **{name: word}).stdout for word in ("yes", "1")]
    assert re.sub(r"\byes\b", "1", plans[0]) == plans[1] and "plan" in plans[0]


def test_gpus_hidden_by_a_variable_are_not_counted(machine: GpuMachine) -> None:
    done = machine.bash(SCRIPT, cwd=SLIME, CUDA_VISIBLE_DEVICES="0,1")
    assert done.returncode == 2 and machine.calls() == []
    assert "8 GPUs are requested, but there are 2 (CUDA_VISIBLE_DEVICES=0,1, of 8)" in done.stderr


def test_a_truncated_file_is_reported_before_anything_is_installed(machine: GpuMachine) -> None:
    (machine.model / "model.safetensors").write_bytes(b"\x10\0\0")
    done = machine.bash(SCRIPT, cwd=SLIME)
    assert done.returncode == 2 and "header is incomplete" in done.stderr and "hf download" in done.stderr
    assert machine.calls() == []
