"""The tiny scripts: their driver arguments, parsed by the driver's own parser."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from claw_base.settings.declare import flags_of
from claw_lab.offline.methods import METHODS, Setting
from openclaw.errors import ConfigError
from openclaw.judge.settings import JudgeSettings
from openclaw.settings import Settings
from openclaw.trainer_hooks import lease
from openclaw.trainer_hooks.services import start
from openclaw_combine.flags import FLAGS
from slime.arguments import Arguments, parse_args
from slime.arguments.__main__ import markdown_of
from slime.errors import ConfigError as SlimeConfigError
from slime.hooks import load_hook
from slime.plugins import load_attr
from slime.training.core.objective import own_spec
from tests import ROOT

SCRIPTS = {
    "rl": "openclaw-rl/run_tiny_openclaw_rl.sh",
    "opd": "openclaw-opd/run_tiny_openclaw_opd.sh",
    "opd_topk": "openclaw-opd/run_tiny_openclaw_opd_topk.sh",
    "combine": "openclaw-combine/run_tiny_openclaw_combine.sh",
    "topk_select": "openclaw-combine/run_tiny_openclaw_topk_select.sh",
}
OPD_TOPK = "openclaw_opd.loss:opd_topk"
COMBINE = "openclaw_combine.loss:combine"
SELECT = "openclaw_combine.loss:topk_select"
LORA = "--use-lora --lora-rank 16 --lora-alpha 32"
SAVE = 'import json, os, sys; print("ARGV " + json.dumps([sys.argv[1:], dict(os.environ)]))'


def asked_for(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str, **env: str) -> Arguments:
    """Returns the driver's arguments of a script. Its Python only prints the command that it would run."""
    fake = folder / "venv" / "bin" / "python"
    fake.parent.mkdir(parents=True)
    fake.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nexec {sys.executable} -c \'{SAVE}\' "$@"\n')
    fake.chmod(0o755)
    files = [ROOT / "requirements.txt", ROOT / "slime/pyproject.toml"]
    stamp = subprocess.run(["cksum"], input=b"".join(f.read_bytes() for f in files), capture_output=True)
    (folder / "venv" / ".installed-requirements").write_text(stamp.stdout.decode().strip())
    run = subprocess.run(
        ["bash", str(ROOT / SCRIPTS[name]), *flags],
        env={"PATH": os.environ["PATH"], "VENV": str(folder / "venv"), "RUN_DIR": str(folder / "run"), **env},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    words, environ = json.loads(run.stdout.split("ARGV ", 1)[1])
    for variable, value in environ.items():
        if variable.startswith(("OPENCLAW_", "PRM_")):
            monkeypatch.setenv(variable, value)
    assert words[words.index("--") + 2] == str(ROOT / "slime/train_async.py")
    return parse_args(words[words.index("--") + 3 :])


@pytest.mark.parametrize("lora", ["", LORA])
@pytest.mark.parametrize(
    ("name", "loss", "source", "method"),
    [
        ("rl", None, "inference", "openclaw_rl.binary_rl"),
        ("opd", None, "trainer", "openclaw_opd.opd"),
        ("opd_topk", OPD_TOPK, "trainer", "openclaw_opd.opd_topk"),
        ("combine", COMBINE, "trainer", "openclaw_combine.combine"),
        ("topk_select", SELECT, "trainer", "openclaw_combine.topk_select"),
    ],
)
def test_a_script_passes_its_method_to_the_driver(
    name: str,
    loss: str | None,
    source: str,
    method: str,
    lora: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    args = asked_for(name, tmp_path, monkeypatch, LORA_ARGS=lora)
    assert (args.loss_spec_path, args.teacher_source, args.use_lora) == (loss, source, bool(lora))
    assert args.loss_type == ("custom_loss" if loss else "policy_loss")
    assert args.method_path == f"{method}:sample_from_judged_turn"
    _, judge = start(args, {"policy": ["http://127.0.0.1:1"], "judge": []})
    assert judge["command"][judge["command"].index("--model-path") + 1] == args.hf_checkpoint


def test_the_hybrids_variables_reach_trainer_and_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"OPENCLAW_TOPK_W_RL": "0.5", "OPENCLAW_TOPK_MAX_CAND": "2", "OPENCLAW_TOPK_SUBSET_MODE": "overlap"}
    args = asked_for("topk_select", tmp_path, monkeypatch, **env)
    assert (args.topk_w_rl, args.hint_m, args.distill_subset_mode) == (0.5, 2, "overlap")
    assert (args.distill_topk, args.hint_selection, args.topk_adv_diff_clip) == (20, "sequence_optimal", 5.0)
    _, judge = start(args, {"policy": ["http://127.0.0.1:1"], "judge": []})
    options = {word for word in judge["command"] if "=" in word}
    assert options == {"topk_w_rl=0.5", "topk_w_opd=12", "hint_m=2", "distill_topk=20"}


def test_judges_get_the_context_length_of_their_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's own context may be eight times as long: too long requests would be rejected five times, then
    dropped."""
    engines = {"policy": ["http://127.0.0.1:1"], "judge": ["http://127.0.0.1:2"]}
    for number, (words, known) in enumerate(
        (
            (["--context-length", "32768"], "32768"),
            (["--context-length", "32768", "--prm-num-gpus", "1", "--prm-context-length", "16384"], "16384"),
            (["--context-length", "32768", "--judge-context-length", "4096"], "4096"),
        )
    ):
        _, judge = start(asked_for("combine", tmp_path / str(number), monkeypatch, *words), engines)
        assert judge["command"][judge["command"].index("--judge-context-length") + 1] == known
    _, rules = start(
        asked_for("combine", tmp_path, monkeypatch, "--context-length", "32768"), {**engines, "judge": []}
    )
    assert "--judge-context-length" not in rules["command"]


OF_PROCESSES = {
    *("host", "port", "run_dir", "save", "rl_buffer_dir", "tensorboard_dir", "update_weight_disk_dir"),
    *(
        "served_model_name",
        "judge_backend",
        "keep_token_records",
        "keep_versions",
        "on_weights_rejected_path",
    ),
    *(
        "gate",
        "gate_data",
        "gate_facts",
        "gate_liked",
        "gate_longest",
        "gate_max_wrong",
        "gate_recent",
        "gate_samples_path",
    ),
    *("catch_up_batch_size", "seed"),
}
"""Settings that a loop without processes lacks: paths, ports, the gate, and waiting batches."""


def test_the_single_process_hybrid_trains_with_the_scripts_flags_and_votes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = asked_for("topk_select", tmp_path, monkeypatch)
    setting = Setting(METHODS["topk_select"])
    here = parse_args(setting.flags(real.hf_checkpoint, str(tmp_path / "here"), 0), env={})
    missing = object()
    differs = {
        name
        for name in vars(real) | vars(here)
        if getattr(real, name, missing) != getattr(here, name, missing)
    }
    assert differs <= OF_PROCESSES
    assert os.environ["PRM_M"] == str(setting.method.votes)


def test_a_flag_of_the_caller_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = asked_for("opd_topk", tmp_path, monkeypatch, "--distill-topk", "8", OPTIMIZER_ARGS="--lr 1e-3")
    assert (args.distill_topk, args.lr) == (8, 1e-3)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_describes_itself(name: str) -> None:
    output = subprocess.run(["bash", str(ROOT / SCRIPTS[name]), "--help"], capture_output=True, text=True)
    assert f"bash {SCRIPTS[name]} --demo" in output.stdout and output.stdout.count("\n") == 6


def test_a_teacher_without_an_engine_is_rejected_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = asked_for("opd", tmp_path, monkeypatch, "--teacher-source", "inference")
    with pytest.raises(ConfigError, match="--opd-teacher-url"):
        start(args, {"policy": ["http://127.0.0.1:1"], "judge": []})


def test_combine_without_scores_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = asked_for("combine", tmp_path, monkeypatch, "--eval-mode", "0")
    with pytest.raises(ConfigError, match="OPENCLAW_EVAL_MODE=1"):
        start(args, {"policy": ["http://127.0.0.1:1"], "judge": []})


@pytest.mark.parametrize(
    ("name", "path", "loss"),
    [
        ("opd_topk", "topk_distillation_loss.topk_distillation_loss_function", OPD_TOPK),
        ("combine", "combine_loss.combine_loss_function", COMBINE),
        ("topk_select", "openclaw_topk_select_loss.openclaw_topk_select_loss_function", SELECT),
    ],
)
def test_loss_functions_of_upstream_scripts_map_to_the_methods(
    name: str, path: str, loss: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--loss-type", "custom_loss", "--custom-loss-function-path", path]
    flags += ["--disable-compute-advantages-and-returns"] if name == "opd_topk" else []
    args = asked_for(name, tmp_path, monkeypatch, *flags)
    assert (args.loss_spec_path, args.custom_loss_function_path) == (path, None)
    assert load_hook(args, "loss_spec_path") is load_attr(loss)
    assert own_spec(args).needs_advantages == (name != "opd_topk")
    assert not args.disable_compute_advantages_and_returns


@pytest.mark.parametrize(
    ("variable", "value", "flag", "wanted"),
    [
        ("OPENCLAW_PORT", "31234", "port", 31234),
        ("OPENCLAW_HOST", "127.0.0.2", "host", "127.0.0.2"),
        ("BASE_MODEL_PATH", str(ROOT / "openclaw-test/tiny_claw/model"), "hf_checkpoint", None),
        ("RL_BUFFER_DIR", "/data/talks", "rl_buffer_dir", "/data/talks"),
    ],
)
def test_an_alias_of_a_variable_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, flag: str, wanted: object
) -> None:
    args = asked_for("rl", tmp_path, monkeypatch, **{variable: value})
    assert getattr(args, flag) == (value if wanted is None else wanted)


def test_a_custom_model_is_served_under_its_folders_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my-model").symlink_to(ROOT / "openclaw-test/tiny_claw/model")
    args = asked_for("rl", tmp_path, monkeypatch, MODEL_PATH=str(tmp_path / "my-model"))
    assert args.served_model_name == "my-model"
    other = tmp_path / "other"
    assert asked_for("rl", other, monkeypatch).served_model_name == "tiny-claw"


def test_a_hub_model_name_is_rejected_with_its_download_command(tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "VENV": sys.prefix,
        "RUN_DIR": str(tmp_path),
        "MODEL_PATH": "Qwen/Qwen3-0.6B",
    }
    script = ["bash", str(ROOT / SCRIPTS["rl"])]
    refused = subprocess.run(script, env=env, capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "hf download Qwen/Qwen3-0.6B" in refused.stderr


def test_the_session_timeout_is_read_from_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SESSION_TTL", "40")
    assert asked_for("rl", tmp_path, monkeypatch).session_ttl == 40
    monkeypatch.setenv("SESSION_TTL", "soon")
    with pytest.raises(SlimeConfigError, match="soon"):
        asked_for("rl", tmp_path / "wrong", monkeypatch)


def test_a_variables_main_name_takes_precedence_over_its_alias(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked_for("rl", tmp_path, monkeypatch, PORT="31235", OPENCLAW_PORT="31234").port == 31235


def test_votes_are_read_from_the_alias_of_their_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for("topk_select", tmp_path, monkeypatch, MAJORITY_VOTE_N="7")
    assert os.environ["PRM_M"] == "7"


def test_a_database_url_replaces_the_buffer_in_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql+psycopg://someone@127.0.0.1/talks"
    args = asked_for("rl", tmp_path, monkeypatch, RL_BUFFER_URL=url)
    assert (args.rl_buffer_url, args.rl_buffer_dir) == (url, None)


def test_bash_and_python_have_the_same_aliases() -> None:
    (names,) = re.findall(r"^ALIASES=\((.*)\)$", (ROOT / "launch/launch.sh").read_text(), re.MULTILINE)
    declared = [item.metadata["env"] for group in (Settings, JudgeSettings) for item in fields(group)]
    for pair in names.split():
        assert tuple(pair.split(":")) in declared, pair


@pytest.mark.parametrize(
    "module",
    [
        "openclaw_rollout",
        "openclaw_opd_rollout",
        "openclaw_combine_rollout",
        "openclaw_combine_select_rollout",
    ],
)
def test_rollout_modules_of_upstream_scripts_lease_batches(module: str) -> None:
    names = importlib.import_module(module)
    (rollout,) = (getattr(names, name) for name in names.__all__ if name.startswith("generate_rollout"))
    assert (rollout, names.on_weights_live) == (lease.generate_rollout, lease.on_weights_live)


@pytest.mark.parametrize(("folder", "path"), [("openclaw-opd", OPD_TOPK), ("openclaw-combine", COMBINE)])
def test_the_table_of_a_methods_flags_is_generated(folder: str, path: str) -> None:
    found = re.search(
        r"<!-- flags: .*?-->\n(.*?)\n<!-- end of flags -->",
        (ROOT / folder / "README.md").read_text(),
        re.DOTALL,
    )
    assert found is not None
    wanted = f"paste: python -m slime.arguments --markdown --loss-spec-path {path}"
    assert found.group(1) == markdown_of([path]), wanted


@pytest.mark.parametrize("group", [*FLAGS])
def test_every_flag_of_a_method_has_an_effect(group: type) -> None:
    files = [
        ROOT / "openclaw-combine/openclaw_combine" / name
        for name in ("loss.py", "combine.py", "topk_select.py")
    ]
    code = "".join(file.read_text() for file in files)
    assert [item.name for item in flags_of(group) if f"flags.{item.name}" not in code] == []


def test_the_help_of_a_driver_lists_the_flags_of_its_method(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_args(["--loss-spec-path", SELECT, "--help-all"], env={})
    output = " ".join(capsys.readouterr().out.split())
    assert "--topk-adv-diff-clip FLOAT limit of teacher minus student" in output
    assert "number of likely ids compared per position (default: 0) [env: OPENCLAW_TOPK_K]" in output


def test_a_misspelt_variable_of_a_method_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SlimeConfigError, match="OPENCLAW_TOPK_W_RL=much"):
        parse_args(["--loss-spec-path", SELECT], env={"OPENCLAW_TOPK_W_RL": "much"})


def test_the_hybrids_rollout_function_has_an_alias() -> None:
    import openclaw_combine_rollout
    import openclaw_combine_select_rollout

    assert (
        openclaw_combine_select_rollout.generate_rollout_openclaw_combine_select
        is openclaw_combine_rollout.generate_rollout_openclaw_combine
    )
