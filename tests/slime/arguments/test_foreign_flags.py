"""Tests flags and variables that users know from the original project and its documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from claw_base.settings.declare import flags_of
from slime.arguments import GROUPS, parse_args
from slime.arguments.upstream.refused import FOREIGN, PREFIXES
from slime.arguments.upstream.shape import SHAPE, SHAPE_SWITCHES, SHAPE_WORDS
from slime.errors import ConfigError
from slime.hooks import HOOKS
from slime.vision.pictures import pictures_of
from tests import ROOT

ORIGINAL = (Path(__file__).with_name("original_flags.txt")).read_text().split()


@pytest.fixture
def model(tmp_path: Path) -> str:
    config = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "rms_norm_eps": 1e-06,
        "rope_parameters": {"rope_theta": 10000.0},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    (tmp_path / "prompts.jsonl").write_text('{"input": "1+1=", "label": "2"}\n')
    return str(tmp_path / "prompts.jsonl")


@pytest.fixture
def words(model: str, prompts: str) -> list[str]:
    return ["--hf-checkpoint", model, "--prompt-data", prompts, "--disable-rewards-normalization"]


@pytest.mark.parametrize("name", ORIGINAL)
def test_every_upstream_flag_works_or_is_rejected_with_a_reason(name: str) -> None:
    ours = {spelling for group in GROUPS for item in flags_of(group) for spelling in item.options}
    word = "--" + name.replace("_", "-")
    prefixed = any(word.startswith(prefix) for prefix in PREFIXES)
    shape = name in SHAPE or name in SHAPE_WORDS or name in SHAPE_SWITCHES
    assert word in ours or word in FOREIGN or prefixed or shape


def test_no_flag_is_both_accepted_and_rejected() -> None:
    ours = {spelling for group in GROUPS for item in flags_of(group) for spelling in item.options}
    assert not ours & set(FOREIGN)
    assert not ours & {"--" + name for name in (*SHAPE, *SHAPE_WORDS, *SHAPE_SWITCHES)}


def test_reasons_name_flags_and_files_that_exist() -> None:
    ours = {spelling for group in GROUPS for item in flags_of(group) for spelling in item.options}
    reasons = " ".join(foreign.reason for foreign in (*FOREIGN.values(), *PREFIXES.values()))
    files = re.findall(r"\S+\.py\b", reasons)
    assert files and [name for name in files if not (ROOT / name).is_file()] == []
    flags = set(re.findall(r"--[a-z][a-z0-9-]+[a-z0-9]\b(?!-)", reasons))
    of_the_gateway = {"--host", "--port"}
    assert flags and sorted(flags - ours - of_the_gateway) == []


def test_the_reason_about_images_names_the_form_that_prompts_accept() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    assert pictures_of([{"role": "user", "content": [picture]}])
    assert all(word in FOREIGN["--multimodal-keys"].reason for word in ("image_url", "data:", "--input-key"))


def test_every_upstream_hook_is_a_flag_or_rejected() -> None:
    names = {item.name for group in GROUPS for item in flags_of(group)}
    assert {name for name, hook in HOOKS.items() if hook.refused is None} <= names
    assert {name for name, hook in HOOKS.items() if hook.refused is not None}.isdisjoint(names)


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        (["--tensor-model-parallel-size", "4"], "Megatron"),
        (["--sequence-parallel"], "--sequence-parallel is for the Megatron backend"),
        (["--recompute-granularity=full"], "--gradient-checkpointing"),
        (["--wandb-key", "secret"], "WANDB_API_KEY"),
        (["--sglang-mem-fraction-static", "0.8"], "SGLang"),
        (["--custom-megatron-init-path", "x.y"], "Megatron"),
        (["--dynamic_history"], "--dynamic_history is not supported"),
        (["--hidden-size", "128"], "contradicts"),
        (["--rotary-base", "5"], "10000"),
        (["--normalization", "LayerNorm"], "RMSNorm"),
        (["--zzz", "--tensor-model-parallel-size", "1"], "unknown flag --zzz"),
    ],
)
def test_unsupported_upstream_flags_are_rejected_with_the_reason(
    words: list[str], extra: list[str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)) as caught:
        parse_args([*words, *extra], env={})
    assert "\n" not in str(caught.value)


def test_upstream_flags_for_default_behaviour_are_accepted(words: list[str]) -> None:
    anyway = (
        "--tensor-model-parallel-size 1 --optimizer adam --attention-dropout 0.0 --qkv-format=thd --swiglu "
        "--accumulate-allreduce-grads-in-fp32 --hidden-size 64 --norm-epsilon 1e-6 --rotary-base 10000 "
        "--normalization RMSNorm"
    )
    assert parse_args([*words, *anyway.split()], env={}) == parse_args(words, env={})


def test_flag_and_variable_names_from_upstream_documents_work(
    model: str, prompts: str, tmp_path: Path
) -> None:
    env = {
        "MODEL_PATH": model,
        "DATA_PATH": prompts,
        "CKPT_SAVE_DIR": str(tmp_path / "kept"),
        "RESUME_CKPT": str(tmp_path),
        "PRM_MODEL_PATH": "/models/prm",
    }
    args = parse_args(["--num-rollouts-per-prompt", "4", "--rollout-batch-size", "2"], env=env)
    assert (args.hf_checkpoint, args.prompt_data, args.n_samples_per_prompt) == (model, prompts, 4)
    assert (args.save, args.load, args.prm_model_path) == (env["CKPT_SAVE_DIR"], str(tmp_path), "/models/prm")
    flags = [
        "--model-path",
        model,
        "--save-dir",
        "a",
        "--resume-from-checkpoint",
        model,
        "--num-rollouts-per-prompt",
        "4",
    ]
    assert parse_args([*flags, "--prompt-data", prompts], env={}).save == str(Path("a").resolve())
    assert parse_args(flags[4:], env={"BASE_MODEL_PATH": model, "DATA_PATH": prompts}).hf_checkpoint == model


def test_data_path_of_a_conversation_store_is_not_taken_for_prompts(model: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def generate_rollout(args, rollout_id, data_source, evaluation=False): ..."
    )
    own = [
        "--hf-checkpoint",
        model,
        "--rollout-function-path",
        f"{tmp_path}/own.py",
        "--disable-rollout-global-dataset",
    ]
    args = parse_args([*own, "--disable-rewards-normalization"], env={"DATA_PATH": "/conversations"})
    assert args.prompt_data is None


def test_a_yaml_file_sets_flags_and_values_for_plugins(words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(
        "lr: 1e-3\nuse-kl-loss: true\nkl_loss_coef: 0.5\nrollout_stop: [a, b]\nbudget: {steps: 3}\n"
    )
    args: Any = parse_args([*words, "--lr", "2", "--custom-config-path", str(file)], env={})
    assert (args.lr, args.use_kl_loss, args.kl_loss_coef, args.rollout_stop) == (1e-3, True, 0.5, ["a", "b"])
    assert args.budget == {"steps": 3}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("lr: fast", "lr=fast is not a valid float"),
        ("lr: [1]", "must be a single float"),
        ("loss_type: magic", "is not one of policy_loss"),
        ("- lr", "must be a mapping of names to values"),
        ("a: b: c", "is not valid YAML"),
    ],
)
def test_an_invalid_yaml_file_is_rejected(
    words: list[str], tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "more.yaml").write_text(text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_args([*words, "--custom-config-path", str(tmp_path / "more.yaml")], env={})
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot read"):
        parse_args([*words, "--custom-config-path", str(tmp_path / "none.yaml")], env={})


def test_a_plugin_may_define_a_flag_that_slime_gives_up(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "def add_arguments(parser):\n    parser.add_argument('--prm-model-path', default='its own')\n"
        "def start(args, endpoints):\n    return []\n"
    )
    args = parse_args([*words, "--service-path", f"{tmp_path}/judge.py"], env={})
    assert args.prm_model_path == "its own"
    with pytest.raises(ConfigError, match="is not supported"):
        parse_args([*words, "--prm-turn-coef", "3"], env={})
