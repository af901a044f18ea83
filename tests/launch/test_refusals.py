"""Rejections of starts and dry runs: before anything is installed, created or left behind."""

from __future__ import annotations

import fcntl
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from claw_base.settings.declare import flags_of
from openclaw.judge.settings import JudgeSettings
from openclaw.judge.teacher.settings import TeacherSettings
from openclaw.settings import Settings
from openclaw.trainer_hooks.services import FROM_TRAINER
from slime.arguments.parser import complete_parser
from slime.flags import GROUPS
from tests import ROOT
from tests.fakes.bare_machine import Bare
from tests.fakes.dry_run import Done, bash, dry
from tests.fakes.gpu_machine import TINY, GpuMachine

SELECT = "openclaw-combine/run_qwen3_4b_openclaw_topk_select.sh"
TWO_NODES = "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh"
TRACK = "swe-rl/run_swe_rl_4b.sh"
TALKS = "openclaw-rl/run_tiny_openclaw_rl.sh"
SMOLLM2 = "openclaw-combine/run_smollm2_135m_openclaw_topk_select.sh"
TINY_TRACK = "swe-rl/run_tiny_swe_rl.sh"
ALL_TINY = [
    TALKS,
    SMOLLM2,
    "openclaw-combine/run_tiny_openclaw_topk_select.sh",
    *(f"{name}-rl/run_tiny_{name}_rl.sh" for name in ("gui", "swe", "terminal", "toolcall")),
    "gui-rl/run_tiny_gui_pixels_rl.sh",
]
TASKS = str(ROOT / "terminal-rl/data/train.jsonl")
LISTED = "missing  for a start here; listed only"
REFUSED = "problem  a start on this machine is refused"


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path)


@pytest.mark.parametrize("script", ALL_TINY)
def test_a_misspelt_flag_is_refused_before_anything_is_installed(
    script: str, bare: Bare, free_port: str
) -> None:
    done = bare.start(script, "--rollout-batch-sise", "4", PORT=free_port)
    assert done.returncode == 2 and bare.is_untouched, done.stderr
    assert done.stderr == ("error: unknown flag --rollout-batch-sise; did you mean --rollout-batch-size?\n")


def test_a_start_with_its_own_database_continues_to_the_installation(bare: Bare, free_port: str) -> None:
    done = bare.start(TALKS, PORT=free_port, RL_BUFFER_URL=f"sqlite:///{bare.folder}/buffer.db")
    assert "contradict" not in done.stderr and bare.log.exists(), done.stderr


@pytest.mark.parametrize(
    ("script", "words", "env", "said"),
    [
        (TALKS, ["--batch-timeout", "soon"], {}, "--batch-timeout: invalid float value: 'soon'"),
        (TALKS, ["--lr", "-1"], {}, "--lr must be"),
        (TALKS, ["--max-person-share", "7"], {}, "--max-person-share must be"),
        (TALKS, [], {"CONTEXT_LENGTH": "abc"}, "CONTEXT_LENGTH=abc is not a valid int"),
        (TALKS, [], {"SESSION_TTL": "soon"}, "SESSION_TTL=soon is not a valid float"),
        (TALKS, [], {"LORA_ARGS": "--lora-rank x"}, "invalid int value: 'x' (from the variable LORA_ARGS)"),
        (TALKS, [], {"PORT": "0x50"}, "PORT=0x50 is not a port"),
        (TALKS, ["--port", "99999"], {}, "PORT=99999 is not a port"),
        (TALKS, [], {"MODEL_PATH": "nowhere"}, "nowhere contains no config.json"),
        (TALKS, [], {"DATA_PATH": "nowhere.jsonl"}, "DATA_PATH=nowhere.jsonl does not exist"),
        (TALKS, [], {"RUN_DIR": "/proc/nope"}, "RUN_DIR=/proc/nope cannot be made"),
        (TALKS, ["--run-dir", "/proc/nope"], {}, "RUN_DIR=/proc/nope cannot be made"),
        (TALKS, [], {"RUN_DIR": __file__}, "cannot be made (File exists)"),
        (TALKS, [], {"SAVE_CKPT": "/proc/nope"}, "SAVE_CKPT=/proc/nope cannot be made"),
        (TALKS, [], {"RL_BUFFER_DIR": "/proc/nope"}, "RL_BUFFER_DIR=/proc/nope cannot be made"),
        (
            TALKS,
            ["--allow-no-key"],
            {"HOST": "nowhere.invalid"},
            "nowhere.invalid is neither an IP address nor",
        ),
        (
            TALKS,
            [],
            {"HOST": "999.1.1.1"},
            "999.1.1.1 is neither an IP address nor a host name that this machine can resolve",
        ),
        (TALKS, [], {"HOST": "192.0.2.1"}, "192.0.2.1 is not an address of this machine"),
        (TALKS, ["--use-wandb"], {}, "--use-wandb needs a key: export WANDB_API_KEY"),
        (TALKS, ["--run-dir", ""], {}, "--run-dir is empty"),
        (
            TALKS,
            [],
            {"ROLLOUT_ARGS": "–lr 3"},
            "'–lr' begins with a typographic dash; write --lr",
        ),
        (TALKS, ["--judge-backend", "openai"], {}, "the openai judge needs --judge-url"),
        (TALKS, ["--cors-origin", "everywhere"], {}, "--cors-origin everywhere: name one site"),
        (TALKS, [], {"RATE_LIMIT": "many"}, "RATE_LIMIT=many is not a valid float"),
        (TALKS, [], {"PRM_M": "abc"}, "PRM_M=abc is not a valid int"),
        (TALKS, [], {"OPENCLAW_API_KEYS": "no pair"}, "write NAME=KEY"),
        (TALKS, [], {"LOG_LEVEL": "loud"}, "loud is not one of debug, info, warning, error"),
        (SMOLLM2, ["--dream-steps", "many"], {}, "--dream-steps: invalid int value: 'many'"),
        (TINY_TRACK, [], {"SEED": "one"}, "--seed: invalid int value: 'one'"),
        (TINY_TRACK, [], {"RUN_DIR": "/proc/nope"}, "RUN_DIR=/proc/nope cannot be made"),
        (TINY_TRACK, [], {"MODEL_PATH": "nowhere"}, "MODEL_PATH=nowhere contains no config.json"),
    ],
)
def test_a_start_rejects_invalid_settings_before_the_installation(
    script: str, words: list[str], env: dict[str, str], said: str, bare: Bare, free_port: str
) -> None:
    done = bare.start(script, *words, **{"PORT": free_port, **env})
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert bare.is_untouched
    planned = dry_here(script, *words, **{"RUN_DIR": str(bare.run), "PORT": free_port, **env})
    assert planned.returncode in (1, 2) and said in planned.stdout + planned.stderr, planned.stdout
    assert bare.is_untouched


@pytest.mark.parametrize("script", [TALKS, SELECT, TINY_TRACK])
def test_a_dry_run_of_a_fresh_clone_rejects_arguments_before_installing(script: str, bare: Bare) -> None:
    done = bare.start(script, "--typo", DRY_RUN="1")
    assert done.returncode == 2 and done.stderr.startswith("error: unknown flag --typo") and bare.is_untouched


@pytest.mark.parametrize("script", ["gui-rl/run_tiny_gui_rl.sh", TINY_TRACK])
def test_a_dry_run_rejects_arguments_before_generating_tasks(script: str, tmp_path: Path) -> None:
    done = bash(script, DRY_RUN="1", SEED="1.5", RUN_DIR=str(tmp_path / "run"))
    assert (done.returncode, done.stderr) == (2, "error: argument --seed: invalid int value: '1.5'\n")


RENTED = {
    "openclaw-tinker/run_tinker_rl.sh": "TINKER",
    "openclaw-fireworks/run_fireworks_hybrid.sh": "FIREWORKS",
}


@pytest.mark.parametrize("script", RENTED)
@pytest.mark.parametrize(
    ("words", "key", "said"),
    [
        (["--rollout-batch-sise", "4"], "tml-x", "unknown flag --rollout-batch-sise"),
        (["--lora-rank", "x"], "tml-x", "argument --lora-rank: invalid int value: 'x'"),
        (["--learning-rate", "-1"], "tml-x", "--learning-rate -1.0 is not"),
        (["--model-path", "nowhere"], "tml-x", "nowhere contains no config.json"),
        ([], "", "no key: export"),
    ],
)
def test_a_start_on_rented_gpus_rejects_errors_before_the_installation(
    script: str, words: list[str], key: str, said: str, bare: Bare
) -> None:
    done = bare.start(script, "--model-path", str(TINY), *words, **{f"{RENTED[script]}_API_KEY": key})
    assert done.returncode == 2 and said in done.stderr and bare.is_untouched, done.stderr


@pytest.mark.parametrize(("script", "slip", "meant"), [
    ("openclaw-tinker/run_tinker_rl.sh", "LERNING_RATE", "LEARNING_RATE"),
    ("openclaw-tinker/run_tinker_rl.sh", "SGLANG_API_KY", "SGLANG_API_KEY"),
    ("openclaw-fireworks/run_fireworks_hybrid.sh", "MAX_STPS", "MAX_STEPS"),
])  # fmt: skip
def test_a_start_on_rented_gpus_warns_of_a_misspelt_variable(
    script: str, slip: str, meant: str, bare: Bare, free_port: str
) -> None:
    env = {f"{RENTED[script]}_API_KEY": "tml-x", "PORT": free_port, meant: "1", "PRM_ENABLED": "0"}
    done = bare.start(script, "--model-path", str(TINY), **env)
    assert "warning" not in done.stderr and "setting up" in done.stderr, done.stderr
    done = bare.start(script, "--model-path", str(TINY), **env, **{slip: "1"})
    assert f"warning: {slip} is set, but no program reads it; did you mean {meant}?" in done.stderr


def test_valid_settings_continue_to_the_installation(bare: Bare, free_port: str) -> None:
    done = bare.start(TALKS, PORT=free_port)
    assert "setting up" in done.stderr and "-m venv" in bare.log.read_text()


def test_all_flags_are_shown_before_anything_is_installed(bare: Bare) -> None:
    done = bare.start(TALKS, "--help-all")
    assert done.returncode == 0 and "--strict-model-name" in done.stdout and bare.is_untouched


def test_a_plug_in_with_missing_packages_is_checked_by_the_driver(bare: Bare, free_port: str) -> None:
    done = bare.start(
        TALKS, "--custom-rm-path", "not_here.rewards:score", "--its-own-flag", "1", PORT=free_port
    )
    assert "setting up" in done.stderr and "unknown flag" not in done.stderr


@pytest.mark.parametrize("gpus", [0, 8])
@pytest.mark.parametrize(
    ("script", "env", "said"),
    [
        (SELECT, {"HF_CKPT": "/nowhere/Qwen3-4B"}, "MODEL_PATH=/nowhere/Qwen3-4B contains no config.json"),
        (SELECT, {"RUN_DIR": "/proc/nope"}, "RUN_DIR=/proc/nope cannot be made"),
        (SELECT, {"SAVE_CKPT": "/proc/nope"}, "SAVE_CKPT=/proc/nope cannot be made"),
        (SELECT, {"DATA_PATH": "/nowhere"}, "DATA_PATH=/nowhere does not exist"),
        (SELECT, {"PORT": "taken"}, "cannot be used (Address already in use)"),
        (
            SELECT,
            {"HOST": "nowhere.invalid", "SGLANG_API_KEY": "x"},
            "nowhere.invalid is neither an IP address",
        ),
        (SELECT, {"SGLANG_PYTHON": "/nowhere/python"}, "SGLANG_PYTHON=/nowhere/python cannot be run"),
        (TRACK, {}, "PROMPT_DATA is not set"),
        (TRACK, {"PROMPT_DATA": "/nowhere.jsonl"}, "PROMPT_DATA=/nowhere.jsonl does not exist"),
        (
            TRACK,
            {"PROMPT_DATA": TASKS, "EVAL_DATA": "/nowhere.jsonl@[:9]"},
            "EVAL_DATA=/nowhere.jsonl@[:9] does not",
        ),
        (TWO_NODES, {}, "set MASTER_ADDR to the address of the first machine"),
        (SELECT, {"ACTOR_GPUS": "16", "GPU_TYPE": "B200"}, ""),
    ],
)
def test_a_dry_run_rejects_missing_parts_on_the_runs_machine_and_lists_them_elsewhere(
    gpus: int, script: str, env: dict[str, str], said: str, tmp_path: Path, taken: str, free_port: str
) -> None:
    machine = GpuMachine(tmp_path, gpus=gpus)
    if gpus == 0:
        (tmp_path / "bin" / "nvidia-smi").unlink()
        said = said or "no GPU: nvidia-smi was not found"
    else:
        said = said or "20 GPUs are requested, but there are 8"
    places = {name: machine.env[name] for name in ("PATH", "HF_CKPT", "RUN_DIR")} | {"PORT": free_port}
    places |= env | ({"PORT": taken} if env.get("PORT") == "taken" else {})
    done = dry_here(script, **places, TP="1")
    title, other = (REFUSED, LISTED) if gpus else (LISTED, REFUSED)
    shown = done.stdout.partition(title)[2]
    assert said in shown and other not in done.stdout, done.stdout + done.stderr
    assert done.returncode == (1 if gpus else 0)
    assert not (tmp_path / "run").exists()


def dry_here(script: str, *words: str, **env: str) -> Done:
    """Like `dry`, with this machine's ports."""
    return dry(script, *words, own_ports=True, **env)


def test_a_dry_run_of_a_complete_machine_is_not_refused(tmp_path: Path, free_port: str) -> None:
    machine = GpuMachine(tmp_path)
    places = {name: machine.env[name] for name in ("PATH", "HF_CKPT", "RUN_DIR")}
    done = dry_here(SELECT, **places, PORT=free_port, TP="1")
    assert done.returncode == 0 and REFUSED not in done.stdout and LISTED not in done.stdout, done.stdout


def test_a_run_folder_in_use_is_refused_by_a_start_and_its_dry_run(bare: Bare, free_port: str) -> None:
    bare.run.mkdir()
    with (bare.run / "supervisor.lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        for script in (TALKS, TINY_TRACK):
            for env in ({"DRY_RUN": "1", "VENV": sys.prefix}, {}):
                done = bare.start(script, PORT=free_port, **env)
                told = done.stdout + done.stderr
                assert (
                    f"{bare.run} is in use by the supervisor with pid 4711" in told
                    and done.returncode in (1, 2)
                )
    assert not bare.log.exists()


def test_port_and_run_folder_flags_override_their_variables(bare: Bare, taken: str, free_port: str) -> None:
    done = bare.start(TALKS, "--port", taken, PORT=free_port)
    assert done.returncode == 2 and f"port {taken} on 127.0.0.1 cannot be used" in done.stderr
    done = bare.start(TALKS, f"--port={free_port}", "--run-dir", str(bare.folder / "other"), PORT=taken)
    assert "setting up" in done.stderr


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"RAY_PORT": "abc"}, "RAY_PORT=abc is not a port"),
        ({"RAY_PORT": "0"}, "RAY_PORT=0 is not a port"),
        ({"JOIN_TIMEOUT": "long"}, "JOIN_TIMEOUT=long: give a whole number of seconds, 1 to"),
        ({"JOIN_TIMEOUT": "0"}, "JOIN_TIMEOUT=0: give 1 or more"),
        ({"MASTER_ADDR": "not a host"}, "MASTER_ADDR=not a host is not an address"),
        ({"MASTER_ADDR": "http://10.0.0.1"}, "MASTER_ADDR=http://10.0.0.1 is not an address"),
        ({"MASTER_ADDR": "10.0.0.1:6379"}, "has a port: give the address alone, and the port with RAY_PORT"),
        ({"MLP_WORKER_0_HOST": "a b"}, "MASTER_ADDR=a b is not an address"),
        ({"RAY_ADDRESS": "my head"}, "RAY_ADDRESS=my head is not an address"),
        ({"NODE_RANK": "first"}, "NODE_RANK=first: give a whole number"),
        ({"SLURM_NODEID": "3"}, "NODE_RANK=3: with NNODES=2 the ranks are 0 to 1"),
        ({"NNODES": "two"}, "NNODES=two: give a whole number"),
        ({"NUM_JUDGE_WORKERS": "0"}, "NUM_JUDGE_WORKERS=0: give 1 or more"),
        ({"NUM_JUDGE_WORKERS": "two"}, "NUM_JUDGE_WORKERS=two: give a whole number"),
        ({"PRM_NUM_GPUS_PER_ENGINE": "0"}, "PRM_NUM_GPUS_PER_ENGINE=0: give 1 or more"),
        ({"PRM_NUM_GPUS_PER_ENGINE": "x"}, "PRM_NUM_GPUS_PER_ENGINE=x: give a whole number"),
        ({"TRAIN_TP": "x", "MEGATRON": "1"}, "TRAIN_TP=x: give a whole number"),
        (
            {"ACTOR_GPUS": "08"},
            "ACTOR_GPUS=08: give a whole number (lists of GPUs need TRAIN_GPUS), 0 to 9999999, without leading zeros",
        ),
        ({"ACTOR_GPUS": "99999999999999999999"}, "0 to 9999999"),
        ({"ACTOR_GPUS": "-1"}, "ACTOR_GPUS=-1: give a whole number"),
        ({"PRM_M": "0.5"}, "PRM_M=0.5: give a whole number of votes per turn"),
        ({"ROLLOUT_ARGS": "–lr 3"}, "'–lr' begins with a typographic dash"),
        ({"ROLLOUT_ARGS": "lr 3"}, "unexpected argument 'lr'; a value must follow its flag"),
        ({"MAX_TOKENS_PER_GPU": "many"}, "MAX_TOKENS_PER_GPU=many is not a valid int"),
        ({"MEM_FRACTION_STATIC": "80%"}, "80% is not a number (from the variable MEM_FRACTION_STATIC)"),
        ({"TRAIN_BACKEND": "deepspeed"}, "(from the variable TRAIN_BACKEND)"),
    ],
)
def test_an_invalid_variable_is_rejected_with_the_valid_values(env: dict[str, str], said: str) -> None:
    done = dry(TWO_NODES, **env)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CONTXT_LENGTH", "CONTEXT_LENGTH"),
        ("RUNDIR", "RUN_DIR"),
        ("TRAIN_GPU", "TRAIN_GPUS"),
        ("ROLOUT_GPSU", "ROLLOUT_GPUS"),
        ("PROT", "PORT"),
        ("STRICT_MODEL_NAMES", "STRICT_MODEL_NAME"),
        ("OPENCLAW_TOPK_W_LR", "OPENCLAW_TOPK_W_RL"),
        ("HF_CPKT", "HF_CKPT"),
        ("OPENAI_API_KEY", ""),
        ("HOSTNAME", ""),
        ("MASTER_PORT", ""),
        ("NCCL_DEBUG", ""),
        ("SLURM_NNODES", ""),
        ("LOCAL_RANK", ""),
        ("SORT", ""),
        ("CONTEXT_LENGTH", ""),
    ],
)
def test_a_misspelt_variable_is_reported_without_rejecting_the_run(name: str, meant: str) -> None:
    done = dry(SELECT, **{name: "1000"})
    warned = f"warning: {name} is set, but no program reads it; did you mean {meant}?\n"
    assert done.stderr == (warned if meant else "") and done.returncode == 0


def test_a_start_also_warns_of_a_misspelt_variable(bare: Bare, free_port: str) -> None:
    done = bare.start(TALKS, "--typo", PORT=free_port, CONTXT_LENGTH="1000")
    assert "did you mean CONTEXT_LENGTH?" in done.stderr and done.returncode == 2


@pytest.mark.parametrize("group", [Settings, JudgeSettings, TeacherSettings])
def test_launch_scripts_accept_every_setting_of_gateway_judge_and_teacher(group: type) -> None:
    parser = complete_parser(["--service-path", "openclaw.trainer_hooks.services.start"], GROUPS, {}).parser
    known = {action.dest for action in parser._actions}
    left = {item.name for item in flags_of(group) if not item.variable_only and item.name not in known}
    assert left <= FROM_TRAINER


def test_arguments_of_the_gateway_are_passed_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done = dry(SELECT, "--strict-model-name", "--rate-limit", "30", "--cors-origin", "https://a.example.com")
    assert done.returncode == 0, done.stderr
    assert "--strict-model-name" in done.stdout and "30.0  [command line]" in done.stdout
    done = dry(SELECT, "--cors-origin", "everywhere")
    assert done.returncode == 1 and "--cors-origin everywhere: name one site" in done.stdout


@pytest.mark.parametrize(
    ("variable", "value", "refused"),
    [
        ("JUDGE_URL", "no url", "--judge-url is not a URL"),
        ("JUDGE_URL", "127.0.0.1:8000", "--judge-url is not a URL"),
        ("JUDGE_URL", "http://127.0.0.1:8000/v1", ""),
        ("JUDGE_READER_URL", "http://a http://b", "--judge-reader-url is not a URL"),
    ],
)
def test_an_invalid_url_is_rejected(variable: str, value: str, refused: str) -> None:
    judge = {"JUDGE_MODEL": "m"} if variable == "JUDGE_URL" else {"JUDGE_READER_MODEL": str(TINY)}
    done = dry(SELECT, PRM_GPUS="0", **judge, **{variable: value})
    assert refused in done.stdout and done.returncode == (1 if refused else 0), done.stdout


@pytest.mark.parametrize("folder", ["*", """-x ein Lauf ü, it's "a$b" *;ls"""])
def test_a_run_folder_may_have_any_name(folder: str, tmp_path: Path, free_port: str) -> None:
    env = {"DRY_RUN": "1", "PORT": free_port}
    done = bash("../" + TALKS, cwd=ROOT / "slime", RUN_DIR=str(tmp_path / folder), **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tmp_path / folder}  [script]" in done.stdout and not list(tmp_path.iterdir())


def test_a_model_may_be_in_any_folder(tmp_path: Path, free_port: str) -> None:
    model = tmp_path / "ein Modell, ü"
    model.symlink_to(TINY)
    done = bash(TALKS, MODEL_PATH=str(model), DRY_RUN="1", PORT=free_port, RUN_DIR=str(tmp_path / "run"))
    assert done.returncode == 0 and "ein Modell, ü  [variable SERVED_MODEL_NAME]" not in done.stdout, (
        done.stderr
    )


def test_parsing_flags_does_not_import_torch() -> None:
    """Importing torch takes longer than the rest of a dry run."""
    done = bash("-c", f"DRY_RUN=1 exec bash {SELECT}", PYTHONVERBOSE="", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0 and "fastapi" not in done.stdout
    assert "slime.arguments" in done.stderr and "torch._C" not in done.stderr
