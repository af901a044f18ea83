"""Every launch script prints its plan without a GPU; impossible settings are rejected before the start."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.fakes.dry_run import bash, dry

SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("openclaw-*/run_qwen*.sh"))
SELECT = "openclaw-combine/run_qwen3_4b_openclaw_topk_select.sh"
ONE_GPU = "openclaw-rl/run_qwen3_4b_openclaw_rl_1gpu.sh"
NAMED = """
    openclaw-rl: qwen3_4b_openclaw_rl qwen3_4b_openclaw_rl_lora qwen35_4b_openclaw_rl qwen3_7b_openclaw_rl
    qwen3_7b_lora_openclaw_rl
    openclaw-opd: qwen3_4b_openclaw_opd qwen3_4b_openclaw_opd_topk qwen3_4b_openclaw_opd_topk_lora
    qwen35_4b_openclaw_opd qwen3_7b_openclaw_opd
    openclaw-combine: qwen3_4b_openclaw_combine qwen3_4b_openclaw_combine_lora qwen3_4b_openclaw_topk_select
    qwen3_4b_openclaw_topk_select_2nodes qwen35_4b_openclaw_combine qwen3_7b_openclaw_combine
"""


def arguments(told: str) -> dict[str, tuple[str, str]]:
    """(value, source) by flag."""
    return {
        flag: (value, source)
        for flag, value, source in re.findall(r"^  (--\S+) +(.*)  \[(.*)\]$", told, re.M)
    }


def test_every_referenced_script_exists() -> None:
    for line in " ".join(NAMED.split()).split(" openclaw-"):
        folder, names = line.removeprefix("openclaw-").split(": ")
        for name in names.split():
            assert f"openclaw-{folder}/run_{name}.sh" in SCRIPTS
            assert os.access(ROOT / f"openclaw-{folder}" / f"run_{name}.sh", os.X_OK)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_dry_run_shows_a_fitting_plan_and_the_origin_of_every_argument(script: str) -> None:
    done = dry(script)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fits     every part" in done.stdout and "problem" not in done.stdout
    shown = arguments(done.stdout)
    assert len(shown) > 150
    assert shown["--rollout-backend"] == ("sglang", "script")
    assert shown["--lr-warmup-iters"] == ("0", "default")
    method = shown["--method-path"][0].split(":")[0]
    assert (ROOT / script).parent.joinpath(*method.split(".")).with_suffix(".py").is_file()
    assert shown["--use-lora"][0] == str("_lora" in script or ("4b" in script and "_1gpu" in script))


def test_the_main_script_runs_as_documented(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((ROOT / "openclaw-test/tiny_claw/model/config.json").read_text())
    env = {
        "DRY_RUN": "1", "HF_CKPT": str(tmp_path), "PRM_M": "5", "OPENCLAW_TOPK_W_RL": "0.5", "GPU_TYPE": "H200",
        "OPTIMIZER_ARGS": "--lr 3e-6", "LORA_ARGS": "--use-lora --lora-rank 32", "MEM_FRACTION_STATIC": "0.7",
        "SGLANG_API_KEY": "a-very-secret-key", "TRAIN_GPUS": "0,1", "ROLLOUT_GPUS": "2,3,4,5", "PRM_GPUS": "6,7",
    }  # fmt: skip
    done = bash("../" + SELECT, "--save-interval", "7", cwd=ROOT / "slime", **env)
    assert done.returncode == 0, done.stderr
    shown = arguments(done.stdout)
    assert shown["--hf-checkpoint"][0] == str(tmp_path)
    assert shown["--lr"] == ("3e-06", "variable OPTIMIZER_ARGS")
    assert shown["--lora-rank"] == ("32", "variable LORA_ARGS")
    assert shown["--save-interval"] == ("7", "command line")
    assert shown["--prm-m"] == ("5", "variable PRM_M")
    assert shown["--topk-w-rl"] == ("0.5", "variable OPENCLAW_TOPK_W_RL")
    assert shown["--distill-topk"] == ("4", "script")
    assert shown["--lr-batch-reference"] == ("16", "script") and shown["--gate-adapt-lr"][0] == "True"
    assert "trainer 2 + policy 4 + judge 2 = 8 of 8 GPUs, H200" in done.stdout
    assert "2 x 2 GPU" in done.stdout
    assert "a-very-secret-key" not in done.stdout + done.stderr
    assert not (ROOT / "runs" / "qwen3_4b_openclaw_topk_select").exists()


def test_a_dry_run_lists_given_arguments_and_counts_the_rest() -> None:
    short = dry(SELECT, DRY_RUN="1", LORA_ARGS="--lora-rank 8").stdout
    assert "--lora-rank" in short and "--lr-warmup-iters" not in short
    assert "more arguments have their defaults; DRY_RUN=full lists them" in short
    assert len(short.splitlines()) < 120


@pytest.mark.parametrize("word", ["true", "yes", "on"])
def test_a_dry_run_starts_nothing_for_any_true_value(word: str) -> None:
    assert "fits     every part" in dry(SELECT, DRY_RUN=word).stdout


def test_a_dry_run_reports_errors_of_a_start() -> None:
    told = dry(SELECT, HF_CKPT="Qwen/Qwen3-4B").stdout
    assert "MODEL_PATH=Qwen/Qwen3-4B contains no config.json" in told and "hf download Qwen/" in told
    assert "set SGLANG_API_KEY to a secret" in told
    told = dry("swe-rl/run_swe_rl_32b_remote_8nodes.sh").stdout
    assert "SWE_EXEC_SERVER_URLS is not set" in told and "--context-length 16384" in " ".join(told.split())


TWO_NODES = "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh"
NEWER = "openclaw-combine/run_qwen35_4b_openclaw_combine.sh"


@pytest.mark.parametrize(
    ("script", "flags", "env", "said"),
    [
        (SELECT, ["--judge-backend", "openai"], {}, "the openai judge needs --judge-url and --judge-model"),
        (SELECT, [], {"PRM_GPUS": "0", "JUDGE_BACKEND": "openai"}, "the openai judge needs --judge-url"),
        (SELECT, ["--temperature", "-1"], {}, "--temperature must be from 0 to 2"),
        (SELECT, [], {"RL_BUFFER_URL": "postgresql://me:secret@h/db"}, "--rl-buffer-url has a password"),
        (NEWER, ["--gate-engine", "cpu"], {}, "--gate-engine cpu: the embedded engine supports no mixtures"),
        (SELECT, [], {"OPENCLAW_API_KEYS": "no pair"}, "write NAME=KEY"),
        (SELECT, ["--host", "0.0.0.0"], {}, "set SGLANG_API_KEY"),
        (SELECT, [], {"HOST": "everybody"}, "listening on everybody without a key"),
        (
            "openclaw-rl/run_qwen3_4b_openclaw_rl.sh",
            ["--dream-steps", "2"],
            {},
            "--dream-steps needs a method",
        ),
        ("gui-rl/gui_qwen3vl_8b_rl.sh", [], {"ROLLOUT_BACKEND": "vllm"}, "vllm accepts no pictures"),
    ],
)
def test_a_dry_run_rejects_what_gateway_judge_or_gate_would_reject(
    script: str, flags: list[str], env: dict[str, str], said: str
) -> None:
    done = dry(script, *flags, **env)
    told = [
        line for line in done.stdout.splitlines() if line.startswith("problem  the run would not start: ")
    ]
    assert done.returncode == 1 and len(told) == 1 and said in told[0], done.stdout + done.stderr
    assert "me:secret" not in done.stdout


@pytest.mark.parametrize(
    ("script", "flags", "variables"),
    [
        (
            SELECT,
            ["--actor-num-gpus-per-node", "2", "--rollout-num-gpus=4"],
            {"ACTOR_GPUS": "2", "ROLLOUT_GPUS": "4"},
        ),
        (SELECT, ["--rollout-num-gpus-per-engine", "1"], {"TP": "1"}),
        (SELECT, ["--colocate", "--use-lora", "--prm-num-gpus", "4"], {"COLOCATE": "1", "PRM_GPUS": "4"}),
        (SELECT, ["--host", "::1", "--port", "31000"], {"HOST": "::1", "PORT": "31000"}),
        (SELECT, ["--run-dir=/tmp/r", "--save", "/tmp/s"], {"RUN_DIR": "/tmp/r", "SAVE_CKPT": "/tmp/s"}),
    ],
)
def test_a_flag_replaces_its_environment_variable(
    script: str, flags: list[str], variables: dict[str, str]
) -> None:
    lora = ["--use-lora"] if "--colocate" in flags else []
    small = {"MEM_FRACTION_STATIC": "0.4"}
    done = dry(script, *flags, *lora, **small), dry(script, *lora, **small, **variables)
    shown = [{name: value for name, (value, _) in arguments(one.stdout).items()} for one in done]
    plans = [re.findall(r"^.* of \d+ GPUs.*$", one.stdout, re.M) for one in done]
    assert done[0].returncode == 0 and plans[0], done[0].stdout + done[0].stderr
    assert shown[0] == shown[1] and plans[0] == plans[1]


def test_a_4b_model_has_the_name_that_clients_of_every_release_request() -> None:
    assert arguments(dry(SELECT).stdout)["--served-model-name"][0] == "qwen3-4b"
    assert arguments(dry(SELECT, SERVED_MODEL_NAME="mine").stdout)["--served-model-name"][0] == "mine"
    assert arguments(dry(NEWER).stdout)["--served-model-name"][0] == "qwen3.5-4b"


@pytest.mark.parametrize(
    ("script", "env", "workers", "requests"),
    [
        (SELECT, {}, "2", "32"),
        ("openclaw-rl/run_qwen3_4b_openclaw_rl_lora.sh", {}, "2", "16"),
        (SELECT, {"PRM_GPUS": "8", "NUM_GPUS": "14", "GPU_TYPE": "H200"}, "4", "64"),
        (SELECT, {"NUM_JUDGE_WORKERS": "1"}, "1", "64"),
        (SELECT, {"JUDGE_MAX_REQUESTS": "7"}, "2", "7"),
    ],
)
def test_a_judge_model_gets_context_for_reasoning_and_a_request_limit_from_its_gpus(
    script: str, env: dict[str, str], workers: str, requests: str
) -> None:
    done = dry(script, **env)
    shown = {flag: value for flag, (value, _) in arguments(done.stdout).items()}
    assert (shown["--num-judge-workers"], shown["--judge-max-requests"]) == (workers, requests), done.stderr
    assert (shown["--prm-max-new-tokens"], shown["--judge-request-timeout"], shown["--judge-timeout"]) == (
        "8192", "300.0", "900.0",
    )  # fmt: skip
    assert re.search(r"^judging  about [\d,]+ turns an hour: ", done.stdout, re.M)


def test_without_a_judge_model_no_judge_engine_is_planned() -> None:
    told = dry(SELECT, PRM_GPUS="0").stdout
    assert "\njudging" not in told and arguments(told)["--judge-timeout"][0] == "-"


def test_one_80_gb_gpu_has_its_own_script() -> None:
    done = dry("openclaw-combine/run_qwen3_4b_openclaw_topk_select_1gpu_80gb.sh")
    shown = {flag: value for flag, (value, _) in arguments(done.stdout).items()}
    assert "trainer 1 + policy 1 (shared) = 1 of 1 GPUs, H100" in done.stdout
    assert (shown["--colocate"], shown["--use-lora"], shown["--load-in-4bit"]) == ("True", "True", "False")
    assert (shown["--context-length"], shown["--max-tokens-per-gpu"], shown["--lora-rank"]) == (
        "32768",
        "32768",
        "32",
    )


def test_lists_of_gpus_may_have_spaces() -> None:
    spaced = dry(SELECT, TRAIN_GPUS="0 1", ROLLOUT_GPUS="2, 3 4 5", PRM_GPUS="6 7", GPU_TYPE="H200")
    assert "trainer 2 + policy 4 + judge 2 = 8 of 8 GPUs" in spaced.stdout, spaced.stderr


def test_vllm_can_replace_sglang_and_has_its_own_flags() -> None:
    done = dry(SELECT, ROLLOUT_BACKEND="vllm", MEM_FRACTION_STATIC="0.7")
    assert done.returncode == 0, done.stderr
    assert arguments(done.stdout)["--rollout-backend"] == ("vllm", "variable ROLLOUT_BACKEND")
    assert "weights 3.7, keys and values 51.6 GiB a GPU" in done.stdout  # of 80 GB; 0.7 is the engine's share


def test_sglang_on_a_trainers_gpu_uses_the_planned_chunk_size_unless_configured() -> None:
    usual = arguments(dry(ONE_GPU).stdout)
    assert usual["--chunked-prefill-size"] == ("2048", "script")
    given = arguments(dry(ONE_GPU, "--sglang-chunked-prefill-size", "512", CUDA_GRAPH_MAX_BS="4").stdout)
    assert given["--chunked-prefill-size"] == ("512", "command line")
    assert arguments(dry(SELECT).stdout)["--chunked-prefill-size"] == ("-", "default")


def test_the_script_passes_the_selected_backends_flags() -> None:
    done = dry(SELECT, "--rollout-backend=vllm", SGLANG_PYTHON="/one", VLLM_PYTHON="/other")
    assert done.returncode == 0, done.stderr
    shown = arguments(done.stdout)
    assert shown["--rollout-backend"] == ("vllm", "command line")
    assert shown["--engine-python"] == ("/other", "variable VLLM_PYTHON")
    done = dry(SELECT, "--train-backend", "megatron")
    assert done.returncode == 0, done.stderr
    assert arguments(done.stdout)["--sequence-parallel"] == ("True", "script")


def test_megatron_uses_no_tensor_parallelism_if_tp_is_1_or_heads_do_not_divide() -> None:
    done = dry("openclaw-rl/run_qwen3_0.6b_openclaw_rl.sh", MEGATRON="1")
    assert "--sequence-parallel" not in done.stderr and "trainer 1 + policy 1" in done.stdout
    done = dry(SELECT, "--tp", "1", "--pp", "4", MEGATRON="1")
    assert "--sequence-parallel" not in done.stderr and "trainer 4 + policy 2" in done.stdout
    done = dry("openclaw-rl/run_qwen35_4b_openclaw_rl.sh", MEGATRON="1", ACTOR_GPUS="8", TRAIN_TP="8")
    assert (
        done.returncode == 2
        and "has 4 attention or key-value heads, which are not divisible by 8" in done.stderr
    )


@pytest.mark.parametrize(
    ("model", "gpus", "tensor", "experts"),
    [
        ("Qwen3-4B", 8, 8, 1),
        ("Qwen3-4B", 16, 8, 1),
        ("Qwen3-8B", 16, 8, 1),
        ("Qwen3.5-4B", 8, 4, 1),
        ("Qwen3-30B-A3B", 8, 4, 8),
        ("Qwen3-30B-A3B", 16, 4, 16),
    ],
)
def test_megatron_uses_the_largest_tensor_parallelism_and_spreads_experts_over_all_gpus(
    model: str, gpus: int, tensor: int, experts: int
) -> None:
    done = dry(SELECT, MEGATRON="1", MODEL_PATH=f"/nowhere/{model}", ACTOR_GPUS=str(gpus), GPU_TYPE="B200")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = arguments(done.stdout)
    assert shown["--tensor-model-parallel-size"] == (str(tensor), "script")
    assert shown["--expert-model-parallel-size"][0] == str(experts)
    assert shown["--use-distributed-optimizer"] == ("True", "script")


def test_pipeline_and_context_parallelism_reduce_tensor_parallelism() -> None:
    done = dry(SELECT, "--pp", "2", "--cp=2", MEGATRON="1", ACTOR_GPUS="8", GPU_TYPE="H100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert arguments(done.stdout)["--tensor-model-parallel-size"] == ("2", "script")
    by_name = dry(SELECT, MEGATRON="1", ACTOR_GPUS="8", GPU_TYPE="H100", TRAIN_PP="2", TRAIN_CP="2")
    shown = arguments(by_name.stdout)
    assert shown["--pipeline-model-parallel-size"] == ("2", "variable TRAIN_PP")
    assert shown["--context-parallel-size"] == ("2", "variable TRAIN_CP")
    assert shown["--tensor-model-parallel-size"] == ("2", "script")


@pytest.mark.parametrize(
    ("script", "model", "set_to", "length"),
    [
        (SELECT, "Qwen3-4B-Thinking-2507", "", ("32768", "script")),
        (SELECT, "SmolLM2-135M-Instruct", "", ("8192", "script")),
        (ONE_GPU, "SmolLM2-135M-Instruct", "", ("8192", "script")),
        (SELECT, "SmolLM2-135M-Instruct", "16384", ("16384", "variable CONTEXT_LENGTH")),
    ],
)
def test_the_context_never_exceeds_the_models_maximum(
    script: str, model: str, set_to: str, length: tuple[str, str]
) -> None:
    variables = {"CONTEXT_LENGTH": set_to} if set_to else {}
    done = dry(script, MODEL_PATH=f"/nowhere/{model}", GPU_TYPE="H100", TP="1", **variables)
    assert arguments(done.stdout)["--context-length"] == length, done.stderr


@pytest.mark.parametrize("size", ["", "_2nodes", "_1gpu", "_1gpu_80gb"])
def test_the_hybrid_practises_preferences_on_everyday_prompts(size: str) -> None:
    """These flags belong together: without --no-topk-plain-teacher, turns without a hint undo what dreams teach."""
    shown = arguments(dry(f"openclaw-combine/run_qwen3_4b_openclaw_topk_select{size}.sh").stdout)
    flags = {
        "--dream-steps": "8", "--dream-first-steps": "32", "--dream-prompts": "100", "--extra-decay-steps": "24",
        "--teacher-guidance": "1.5", "--standing-wishes": "person", "--topk-plain-teacher": "False",
    }  # fmt: skip
    assert {name: shown[name] for name in flags} == {name: (value, "script") for name, value in flags.items()}


def test_missing_parts_of_vllm_are_named() -> None:
    told = bash("instructions/check_gpu.sh", ROLLOUT_BACKEND="vllm", VLLM_PYTHON="/nonexistent").stdout
    assert "vLLM in /nonexistent" in told and "requirements-vllm.txt" in told and "SGLang" not in told


def test_a_plan_that_does_not_fit_is_reported() -> None:
    done = dry(ONE_GPU, GPU_TYPE="12GB")
    assert done.returncode == 1
    assert "problem  the trainer needs" in done.stdout


@pytest.mark.parametrize(
    ("script", "env", "said"),
    [
        (SELECT, {"NUM_GPUS": "4"}, "= 8, but NUM_GPUS=4"),
        (SELECT, {"DRY_RUN": "maybe"}, "give 1 for the plan"),
        (SELECT, {"DRY_RUN": "1", "PORT": "99999"}, "PORT=99999 is not a port"),
        (SELECT, {"DRY_RUN": "1", "PRM_M": "0"}, "PRM_M=0: give a whole number of votes"),
        (
            SELECT,
            {"ACTOR_GPUS": "four"},
            "ACTOR_GPUS=four: give a whole number (lists of GPUs need TRAIN_GPUS), 0 to 9999999",
        ),
        (SELECT, {"NUM_GPUS": "abc"}, "NUM_GPUS=abc: give a whole number, 0 to 9999999"),
        (SELECT, {"TP": "0"}, "TP=0: give 1 or more"),
        (SELECT, {"NNODES": "0"}, "NNODES=0: give 1 or more"),
        (TWO_NODES, {"NODE_RANK": "2"}, "NODE_RANK=2: with NNODES=2 the ranks are 0 to 1"),
        (SELECT, {"TRAIN_GPUS": "0,1"}, "ROLLOUT_GPUS must list some too"),
        (SELECT, {"TRAIN_GPUS": "4,5", "ROLLOUT_GPUS": "0,1"}, "GPU 0 comes after GPU 5"),
        (SELECT, {"TRAIN_GPUS": "0,1", "ROLLOUT_GPUS": "1,2"}, "GPU 1 comes after GPU 1"),
        (SELECT, {"DRY_RUN": "0", "HOST": "0.0.0.0"}, "set SGLANG_API_KEY to a secret"),
        (SELECT, {"HOST": "127.0.0.1"}, "hf download Qwen/Qwen3-4B-Thinking-2507"),
    ],
)
def test_invalid_settings_are_rejected(script: str, env: dict[str, str], said: str) -> None:
    done = bash(script, **env)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_machine_without_enough_gpus_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: x)'\necho 'GPU 1: NVIDIA H100 (UUID: y)'\n")
    tool.chmod(0o755)
    env = {
        "HF_CKPT": str(tmp_path),
        "HOST": "127.0.0.1",
        "PATH": f"{tool.parent}:{os.environ['PATH']}",
    }
    done = bash(SELECT, **env)
    assert done.returncode == 2
    assert "8 GPUs are requested, but there are 2" in done.stderr
    done = bash(SELECT, **env, TRAIN_GPUS="0", ROLLOUT_GPUS="2", TP="1")
    assert done.returncode == 2
    assert "GPU 2 does not exist" in done.stderr and "this machine has 0 to 1" in done.stderr
    tool.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2; exit 9\n")
    done = bash(SELECT, **env)
    assert done.returncode == 2
    assert "no GPU: nvidia-smi lists none" in done.stderr


def test_a_dry_run_reports_what_several_machines_need_to_connect() -> None:
    script = "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh"
    assert "set MASTER_ADDR to the address of the first machine" in dry(script).stdout
    told = dry(script, MASTER_ADDR="10.0.0.1").stdout
    assert "set RAY_AUTH_TOKEN to the same secret" in told and "MASTER_ADDR to" not in told
    assert "RAY_AUTH_TOKEN to" not in dry(script, MASTER_ADDR="10.0.0.1", RAY_AUTH_TOKEN="x").stdout
    assert "MASTER_ADDR to" not in dry(SELECT).stdout


def test_a_dry_run_on_a_machine_with_gpus_lists_missing_parts(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    gpus = "".join(f"GPU {number}: NVIDIA H100 (UUID: {number})\n" for number in range(8))
    tool.write_text(f"""#!/bin/sh
case "$*" in *driver_version*) echo "H100, 550.54" ;; *-L*) printf '%s' '{gpus}' ;; esac
""")
    tool.chmod(0o755)
    path = {"PATH": f"{tool.parent}:{os.environ['PATH']}"}
    assert "the GPU driver is 550.54; CUDA 13" in dry(SELECT, **path).stdout
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: x)'\n")
    assert "8 GPUs are requested, but there are 1" in dry(SELECT, **path).stdout
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text((ROOT / "openclaw-test/tiny_claw/model/config.json").read_text())
    assert "so its download is not complete" in dry(SELECT, HF_CKPT=str(model), TP="1").stdout


def test_a_machine_that_joins_needs_the_address_of_the_first() -> None:
    done = bash(
        "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh", NODE_RANK="0", HOST="127.0.0.1"
    )
    assert done.returncode == 2
    assert "config.json" in done.stderr


@pytest.mark.parametrize("script", [SELECT, ONE_GPU])
def test_a_script_describes_itself(script: str) -> None:
    told = bash(script, "--help").stdout
    assert f"bash {script}" in told and "DRY_RUN=1" in told


def test_scripts_kill_no_processes_by_name() -> None:
    for path in ROOT.glob("**/*.sh"):
        assert not re.search(r"\b(pkill|killall|ray stop)\b", path.read_text()), path


def test_an_example_is_rejected_if_slime_is_not_installed(tmp_path: Path) -> None:
    """In the repository's root, `import slime` finds the folder of that name, which is not a package."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    python.chmod(0o755)
    done = bash("slime/examples/arithmetic/sft.sh", PYTHON=str(python), RUN_DIR=str(tmp_path / "run"))
    assert done.returncode == 2
    assert "does not find slime; run: pip install -e" in done.stderr
    assert not (tmp_path / "run").exists()
