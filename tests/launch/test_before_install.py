"""A start on a bare machine rejects what its dry run rejects, before it installs anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from slime.plan import dry_run
from slime.plan.hardware import GPUS
from tests import ROOT
from tests.fakes.bare_machine import Bare
from tests.fakes.dry_run import dry
from tests.fakes.gpu_machine import TINY, GpuMachine

SELECT = "openclaw-combine/run_qwen3_4b_openclaw_topk_select.sh"
TWO_NODES = "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh"
TOOLS = "toolcall-rl/run_toolcall_rl.sh"
TERMINAL = "terminal-rl/run_terminal_rl.sh"
SWE = "swe-rl/run_swe_rl_4b.sh"
ONE_GPU = "openclaw-rl/run_qwen3_4b_openclaw_rl_1gpu.sh"
ONE_LARGE_GPU = "openclaw-combine/run_qwen3_4b_openclaw_topk_select_1gpu_80gb.sh"
EVALUATE = "openclaw-test/run_eval.sh"
VERIFIERS = "slime/examples/verifiers_game/run_tiny.sh"
TASKS = {"PROMPT_DATA": str(ROOT / "terminal-rl/data/train.jsonl")}
CLUSTER = {"MASTER_ADDR": "127.0.0.1", "RAY_AUTH_TOKEN": "x"}
SHARE = "2 must be a share of a GPU's memory, above 0 and at most 1"


@pytest.fixture
def rented_node(tmp_path: Path) -> Bare:
    """A machine with eight GPUs and a downloaded model."""
    machine = GpuMachine(tmp_path / "other")
    (tmp_path / "bare").mkdir()
    bare = Bare(tmp_path / "bare", gpus=8)
    bare.env |= {"HF_CKPT": str(machine.model), "HOME": str(tmp_path)}
    return bare


@pytest.mark.parametrize(
    ("script", "words", "env", "said"),
    [
        (SELECT, [], {"PRM_MODEL_PATH": "/nope"}, "/nope"),
        (SELECT, ["--prm-model-path", "/nope"], {}, "/nope"),
        (SELECT, [], {"PRM_MODEL_PATH": "/nope/Qwen3-4B"}, "/nope/Qwen3-4B contains no config.json"),
        (SELECT, [], {"MEM_FRACTION_STATIC": "2"}, f"{SHARE} (from the variable MEM_FRACTION_STATIC)"),
        (SELECT, [], {"MEM_FRACTION_STATIC": "0"}, "0 must be a share of a GPU"),
        (SELECT, ["--prm-sglang-mem-fraction-static", "2"], {}, SHARE),
        (SELECT, [], {"ROLLOUT_BACKEND": "vllm", "MEM_FRACTION_STATIC": "2"}, SHARE),
        (SELECT, [], {"TP": "3", "ROLLOUT_GPUS": "3", "PRM_GPUS": "0"}, "policy engine's 3 GPUs do not divide the 4"),
        (SELECT, [], {"PRM_NUM_GPUS_PER_ENGINE": "3", "PRM_GPUS": "3", "ACTOR_GPUS": "3"}, "judge engine's 3 GPUs do"),
        (SELECT, [], {"GPUS_OF_NODE": "4"}, "there are 4: make a part smaller (GPUS_OF_NODE=4)"),
        (SELECT, [], {"USE_WANDB": "1"}, "--use-wandb needs a key: export WANDB_API_KEY"),
        (TWO_NODES, [], {**CLUSTER, "GPUS_OF_NODE": "1"}, "there are 2: make a part smaller (GPUS_OF_NODE=1)"),
        (TOOLS, [], {**TASKS, "TOOLS_CONFIG": "/nope"}, "TOOLS_CONFIG: /nope cannot be read"),
        (TOOLS, [], {**TASKS, "TOOLS_CONFIG": '{"tools": []}'}, "TOOLS_CONFIG names no tools"),
        (TERMINAL, [], {**TASKS, "DATASET_DIR": "/nope"}, "--tasks-dir (DATASET_DIR) /nope is not a folder"),
        (TERMINAL, [], {**TASKS, "ENV_SERVER_URL": "nope"}, "--env-server-url (ENV_SERVER_URL) nope is not a URL"),
        (SWE, [], {**TASKS, "SWE_EXEC_SERVER_URLS": "http://a:1,b:1"}, "(SWE_EXEC_SERVER_URLS) b:1 is not a URL"),
        (TWO_NODES, [], {**CLUSTER, "RAY_AUTH_TOKEN": "", "RAY_AUTH_TOKEN_PATH": "/nope"}, "/nope cannot be read: set"),
        (TWO_NODES, [], {**CLUSTER, "GPUS_OF_NODE": "16"}, "GPUS_OF_NODE=16, but this machine has 8 GPUs"),
        (TWO_NODES, [], {**CLUSTER, "MASTER_ADDR": "no-such.invalid"}, "no-such.invalid is neither an IP address"),
        (TWO_NODES, [], {**CLUSTER, "MASTER_ADDR": "192.0.2.1"}, "192.0.2.1 is not an address of this machine, which is"),
        (TWO_NODES, [], {**CLUSTER, "RAY_PORT": "31000", "PORT": "31000"}, "RAY_PORT and PORT are both 31000"),
        (SELECT, [], {"MEGATRON": "1", "TRAIN_BACKEND": "fsdp"}, "MEGATRON=1 and TRAIN_BACKEND=fsdp contradict"),
        (SELECT, [], {"PRM_GPUS": "2", "JUDGE_URL": "http://a:1"}, "PRM_GPUS=2 is for a judge model, and JUDGE_URL asks"),
        (SELECT, ["--judge-backend", "rules"], {"PRM_GPUS": "2"}, "and JUDGE_BACKEND=rules asks for another judge"),
        (SELECT, [], {"ROLLOUT_GPUS": "0"}, "ROLLOUT_GPUS=0: no engine would serve the policy"),
        (SELECT, [], {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,9"}, "GPU 9 does not exist (CUDA_VISIBLE_DEVICES)"),
        (SELECT, ["--prm-hf-checkpoint", "/nope"], {}, "/nope"),
        (SELECT, [], {"OPENCLAW_COMBINE_OPD_TEACHER_SOURCE": "nope"}, "give trainer or inference"),
        (SELECT, [], {"CONTEXT_LENGTH": "999999"}, "policy engine would have a context of 999999 tokens, but"),
        (SWE, ["--env-server-url", "http://a:1", "--exec-server-urls", "http://b:1"], TASKS, "is a pool that runs"),
    ],
)  # fmt: skip
def test_a_start_on_a_bare_machine_rejects_the_same_as_its_dry_run(
    script: str,
    words: list[str],
    env: dict[str, str],
    said: str,
    rented_node: Bare,
    free_port: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = rented_node.start(script, *words, **{"PORT": free_port, **env})
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert rented_node.is_untouched
    monkeypatch.setattr(dry_run, "gpus_here", lambda: [GPUS["H100"]] * 8)
    own_ports = script == TWO_NODES
    planned = dry(script, *words, own_ports=own_ports, **{**rented_node.env, "PORT": free_port, **env})
    assert planned.returncode in (1, 2) and said in planned.stdout + planned.stderr, planned.stdout


@pytest.mark.parametrize(
    ("script", "env"),
    [
        (SELECT, {}),
        (SELECT, {"USE_WANDB": "1", "WANDB_KEY": "x"}),
        (SELECT, {"CONTEXT_LENGTH": "999999", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}),
        (SELECT, {"GPUS_OF_NODE": "8", "TP": "1", "MEM_FRACTION_STATIC": "0.5"}),
        (SELECT, {"CUDA_VISIBLE_DEVICES": ",".join(f"GPU-{number}" for number in range(8))}),
        (SELECT, {"ROLLOUT_GPUS": "0", "ROLLOUT_ARGS": "--rollout-external-engine-addrs 127.0.0.1:1"}),
        (TWO_NODES, CLUSTER),
        (TWO_NODES, {**CLUSTER, "NODE_RANK": "1"}),
        (TWO_NODES, {**CLUSTER, "NODE_RANK": "1", "MASTER_ADDR": "192.0.2.1"}),
        (TOOLS, {**TASKS, "TOOLS_CONFIG": '{"tools": [{"type": "python"}]}'}),
    ],
)
def test_a_valid_command_continues_to_the_installation(
    script: str, env: dict[str, str], rented_node: Bare, free_port: str
) -> None:
    done = rented_node.start(script, PORT=free_port, **env)
    assert "setting up" in done.stderr and rented_node.log.exists(), done.stderr


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"DATASET_DIR": "/nope"}, "--tasks-dir (DATASET_DIR) /nope is not a folder"),
        ({"ENV_SERVER_URL": "nope"}, "--env-server-url (ENV_SERVER_URL) nope is not a URL"),
    ],
)
def test_a_tiny_track_rejects_an_invalid_task_folder(env: dict[str, str], said: str, tmp_path: Path) -> None:
    bare = Bare(tmp_path)
    done = bare.start("terminal-rl/run_tiny_terminal_rl.sh", **env)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and said in done.stderr and bare.is_untouched


def test_a_gpu_share_too_small_for_the_weights_is_rejected_before_the_installation(
    rented_node: Bare, free_port: str
) -> None:
    done = rented_node.start(ONE_GPU, PORT=free_port, MEM_FRACTION_STATIC="0.00001")
    assert done.returncode == 2 and "share 1e-05 of a NVIDIA H100 80GB HBM3 is too small for" in done.stderr
    assert rented_node.is_untouched


def test_a_plan_for_another_machine_needs_neither_the_judge_nor_a_key(rented_node: Bare) -> None:
    env = {**rented_node.env, "PRM_MODEL_PATH": "/nowhere/Qwen3-8B", "TP": "1", "USE_WANDB": "1"}
    done = dry(SELECT, **env)
    assert done.returncode == 0, done.stdout


def test_an_occupied_ray_port_is_rejected_on_the_first_machine(rented_node: Bare, free_port: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        done = rented_node.start(TWO_NODES, PORT=free_port, RAY_PORT=taken, **CLUSTER)
        assert done.returncode == 2 and f"RAY_PORT={taken} on 127.0.0.1 cannot be used" in done.stderr
        assert rented_node.is_untouched
        joins = rented_node.start(TWO_NODES, PORT=free_port, RAY_PORT=taken, NODE_RANK="1", **CLUSTER)
        assert "setting up" in joins.stderr


@pytest.mark.parametrize(
    "script", [SELECT, "openclaw-combine/run_qwen3_4b_openclaw_combine_lora.sh", TWO_NODES]
)
def test_a_judge_without_a_model_needs_no_gpus(script: str) -> None:
    env = {"JUDGE_URL": "http://127.0.0.1:1/v1", "JUDGE_MODEL": "m", **CLUSTER}
    for more in (env, {"JUDGE_BACKEND": "rules", **CLUSTER}):
        done = dry(script, **more)
        assert "judge" not in next(line for line in done.stdout.splitlines() if line.startswith("split")), (
            done.stdout
        )


def test_a_fresh_clone_warns_once_of_a_misspelt_variable_in_a_plan(tmp_path: Path, free_port: str) -> None:
    bare = Bare(tmp_path)
    planned = bare.start(SELECT, DRY_RUN="1", PORT=free_port, CONTXT_LENGTH="1")
    assert (
        "CONTXT_LENGTH" not in planned.stderr and bare.log.exists()
    )  # the plan reports it once the packages are installed
    refused = bare.start(SELECT, "--typo", DRY_RUN="1", PORT=free_port, CONTXT_LENGTH="1")
    assert refused.stderr.count("did you mean CONTEXT_LENGTH") == 1


@pytest.mark.parametrize("gpus", [0, 8])
@pytest.mark.parametrize("script", [SELECT, ONE_GPU, ONE_LARGE_GPU, TWO_NODES])
def test_a_fresh_clone_plans_before_the_model_is_downloaded(
    script: str, gpus: int, tmp_path: Path, free_port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Bare(tmp_path, gpus=gpus)
    done = bare.start(script, DRY_RUN="1", PORT=free_port, USE_WANDB="0" if gpus else "1")
    assert "error" not in done.stderr and bare.log.exists(), done.stderr
    if gpus:
        monkeypatch.setattr(dry_run, "gpus_here", lambda: [GPUS["H100"]] * gpus)
    env = {**bare.env, "HF_CKPT": "/nowhere/Qwen3-4B", "PORT": free_port}
    planned = dry(script, **env)
    assert "/nowhere/Qwen3-4B does not exist yet" in planned.stdout, planned.stderr
    assert "--prm-model-path /nowhere/Qwen3-4B contains no config.json" not in planned.stdout


def test_a_machine_without_a_gpu_is_rejected_unless_declared(tmp_path: Path) -> None:
    bare = Bare(tmp_path)
    env = {**CLUSTER, "NODE_RANK": "1", "HF_CKPT": str(TINY)}
    done = bare.start(TWO_NODES, **env)
    assert done.returncode == 2 and "no GPU: nvidia-smi was not found" in done.stderr and bare.is_untouched
    assert "GPUS_OF_NODE=0 lets a machine without GPUs join" in done.stderr
    assert "setting up" in bare.start(TWO_NODES, **env, GPUS_OF_NODE="0").stderr


def test_a_start_installs_the_configured_tracker(tmp_path: Path, free_port: str) -> None:
    machine = GpuMachine(tmp_path)
    done = machine.bash(SELECT, PORT=free_port, USE_WANDB="1", WANDB_KEY="x", SGLANG_PYTHON="/bin/sh")
    assert done.returncode == 0 and "installing wandb for --use-wandb (once)" in done.stderr, done.stderr
    installed, started = machine.calls()
    assert "-m pip install" in installed and f" wandb -r {ROOT}/requirements.txt" in installed
    assert "--use-wandb --wandb-project openclaw_rl" in started
    machine.log.unlink()
    assert machine.bash(SELECT, PORT=free_port, SGLANG_PYTHON="/bin/sh").returncode == 0
    assert "wandb" not in machine.log.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: --model-path"),
        (["--model-path", "/nope"], "/nope contains no config.json"),
        (["--model-path", str(TINY), "--compare", "/nope"], "/nope contains no config.json"),
        (["--model-path", str(TINY), "--eval-tasks", "chess"], "chess: choose from conversation, wishes"),
        (["--model-path", str(TINY), "--num-problems", "0"], "give a whole number, 1 or more"),
        (["--model-path", str(TINY), "--dataset", "/nope.jsonl"], "there is no file /nope.jsonl"),
        (["--model-path", str(TINY), "--output", "/nope/report"], "there is no folder /nope"),
        (["--model-path", str(TINY), "--typo"], "unrecognized arguments: --typo"),
    ],
)
def test_an_invalid_evaluation_is_rejected_before_the_installation(
    words: list[str], said: str, tmp_path: Path
) -> None:
    bare = Bare(tmp_path)
    done = bare.start(EVALUATE, *words)
    assert done.returncode == 2 and said in done.stderr and bare.is_untouched, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_valid_evaluation_continues_to_the_installation(tmp_path: Path) -> None:
    bare = Bare(tmp_path)
    assert bare.start(EVALUATE, "--help-all").returncode == 0 and bare.is_untouched
    assert "setting up" in bare.start(EVALUATE, "--model-path", str(TINY)).stderr


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["--typo"], {}, "unknown flag --typo"),
        ([], {"SEED": "one"}, "argument --seed: invalid int value: 'one'"),
        ([], {"NUM_ROLLOUT": "0.5"}, "invalid int value: '0.5'"),
        ([], {"MODEL_PATH": "/nope"}, "MODEL_PATH=/nope contains no config.json"),
        ([], {"RUN_DIR": "/proc/nope"}, "RUN_DIR=/proc/nope cannot be made"),
        ([], {"VERIFIERS_PYTHON": "/nope"}, "VERIFIERS_PYTHON=/nope cannot be run"),
        ([], {"PARALLEL_ENVS": "0"}, "PARALLEL_ENVS=0: give 1 or more"),
    ],
)
def test_the_verifiers_example_rejects_errors_before_the_installation(
    words: list[str], env: dict[str, str], said: str, tmp_path: Path
) -> None:
    bare = Bare(tmp_path)
    done = bare.start(VERIFIERS, *words, **env)
    assert done.returncode == 2 and said in done.stderr and bare.is_untouched, done.stderr
    assert "setting up" in bare.start(VERIFIERS).stderr
