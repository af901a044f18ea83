from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slime
from claw_base.settings.declare import flags_of
from slime.arguments import GROUPS, Arguments, parse_args
from slime.arguments.record import read_arguments, write_arguments
from slime.errors import ConfigError
from tests import FAKES

EXAMPLE = str(FAKES / "example_custom_loss.py")
SOURCE = Path(slime.__file__).parent
PLUGIN = """
def add_arguments(parser):
    parser.add_argument("--colour", default="red")

def generate(args, rollout_id, data_source, evaluation=False):
    return args.colour

def start(args, endpoints):
    return []
"""


@pytest.fixture
def words(model_folder: str, tmp_path: Path) -> list[str]:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    return [
        "--hf-checkpoint",
        model_folder,
        "--run-dir",
        str(tmp_path / "run"),
        "--rollout-function-path",
        f"{tmp_path}/plugin.py:generate",
        "--disable-rollout-global-dataset",
        "--disable-rewards-normalization",
    ]


def test_defaults_and_derived_values(words: list[str], tmp_path: Path, model_folder: str) -> None:
    args = parse_args(words, env={})
    assert args.save == str(tmp_path / "run" / "checkpoints")
    assert args.tensorboard_dir == str(tmp_path / "run" / "tensorboard")
    assert args.ref_load == model_folder
    assert args.global_batch_size == 4
    assert args.train_world_size == 1


def test_a_flag_wins_over_the_environment_which_wins_over_the_default(
    words: list[str], model_folder: str
) -> None:
    env = {"MAX_TOKENS_PER_GPU": "77", "SAVE_CKPT": "/from/env"}
    assert parse_args(words, env=env).max_tokens_per_gpu == 77
    assert parse_args([*words, "--max-tokens-per-gpu", "5"], env=env).max_tokens_per_gpu == 5
    assert parse_args(words, env={}).max_tokens_per_gpu == 8192
    assert parse_args(words[2:], env={"MODEL_PATH": model_folder}).hf_checkpoint == model_folder


def test_the_last_repeated_flag_wins_and_list_flags_accumulate(words: list[str]) -> None:
    plugin = words[5].replace(":generate", ":start")
    args = parse_args(
        [*words, "--lr", "1", "--lr", "2", "--service-path", plugin, "--service-path", plugin], env={}
    )
    assert args.lr == 2
    assert args.service_path == [plugin, plugin]


def test_plugins_add_their_own_flags(words: list[str]) -> None:
    args: Any = parse_args([*words, "--colour", "blue"], env={})
    assert args.colour == "blue"
    copy: Any = pickle.loads(pickle.dumps(args))
    assert copy.colour == "blue"
    assert copy == args
    default: Any = parse_args(words, env={})
    assert default.colour == "red"


def test_a_plugin_may_not_redefine_a_flag(words: list[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad_plugin.py"
    bad.write_text(PLUGIN.replace("--colour", "--lr"))
    with pytest.raises(ConfigError, match="already exists"):
        parse_args([*words, "--on-weights-live-path", f"{bad}:generate"], env={})


@pytest.mark.parametrize(
    ("extra", "complaint"),
    [
        (["--rolout-batch-size", "4"], "did you mean --rollout-batch-size"),
        (["--colur=x"], "did you mean --colour"),
        (["--learning-rate", "1e-6"], "here it is --lr"),
        (["--batch-size=8"], "here it is --rollout-batch-size"),
        (["--zzz"], "unknown flag --zzz"),
        (["stray"], "unexpected argument 'stray'"),
        (["--lr", "fast"], "--lr"),
        (["--loss-type", "magic"], "policy_loss"),
        (["--rollout-batch-size", "0"], "--rollout-batch-size must be 1 or more"),
        (["--lr", "nan"], "--lr must be 0 or more"),
        (
            ["--update-weights-interval", "2", "--on-weights-live-path", "json.dumps"],
            "leave batches uncommitted",
        ),
        (["--eval-temperature", "nan"], "--eval-temperature must be a number, got nan"),
        (["--kl-loss-coef", "0.1"], "needs --use-kl-loss"),
        (["--use-unbiased-kl"], "needs --use-kl-loss"),
        (["--eps-clip-c", "0.9"], "above 1"),
        (["--eps-clip-c", "3", "--advantage-estimator", "cispo"], "cispo"),
        (["--advantage-estimator", "reinforce_plus_plus"], "needs --normalize-advantages"),
        (["--advantage-estimator", "step_wise", "--normalize-advantages"], "single steps"),
        (["--advantage-estimator", "on_policy_distillation", "--use-opd"], "drop one"),
        (["--kl-coef", "0.1"], "--kl-loss-coef"),
        (["--kl-coef", "0.1", "--use-kl-loss", "--kl-loss-coef", "0.1"], "drop one"),
        (["--gamma", "0.9"], "--gamma has no effect"),
        (["--gamma", "1.5"], "from 0 to 1"),
        (["--opd-kl-coef", "2"], "needs --use-opd"),
        (["--opsm-delta", "1"], "needs --use-opsm"),
        (["--tis-clip", "3"], "need --use-tis"),
        (["--tis-mode", "icepop"], "need --use-tis"),
        (["--use-tis", "--tis-clip-low", "3"], "above --tis-clip"),
        (["--loss-type", "sft_loss", "--use-tis"], "no effect"),
        (["--loss-type", "custom_loss"], "--custom-loss-function-path"),
        (["--custom-loss-function-path", "json.dumps"], "sum_of_sample_mean"),
        (["--custom-loss-function-path", EXAMPLE, "--entropy-coef", "1"], "a custom loss"),
        (["--custom-loss-function-path", EXAMPLE, "--advantage-estimator", "gspo"], "use grpo"),
        (["--custom-tis-function-path", "json.dumps"], "need --use-tis"),
        (["--custom-advantage-function-path", "json.no_such"], "no_such"),
        (["--disable-compute-advantages-and-returns"], "no effect"),
        (["--lora-rank", "0"], "--lora-rank must be 1"),
        (["--lora-alpha", "0"], "--lora-alpha must be above 0"),
        (["--lora-dropout", "1"], "below 1"),
        (["--micro-batch-size", "2"], "--no-use-dynamic-batch-size"),
        (["--global-batch-size", "9"], "exceeds the 4 samples"),
        (["--num-steps-per-rollout", "3"], "are not divisible"),
        (["--num-steps-per-rollout", "2", "--global-batch-size", "4"], "drop one"),
        (["--lr-decay-style", "cosine"], "--lr-decay-iters"),
        (["--min-lr", "1e-9"], "--lr-decay-style"),
        (["--loss-type", "sft_loss", "--entropy-coef", "1"], "no effect"),
        (["--actor-num-gpus-per-node", "2", "--num-train-processes", "2"], "CPU"),
        (["--rollout-num-gpus", "2", "--rollout-num-engines", "2"], "CPU"),
        (["--hf-checkpoint", "/nowhere"], "config.json"),
        (["--load", "/nowhere"], "--load"),
        (["--service-path", "no_such_module.start"], "no_such_module"),
        (["--service-path", "json.start"], "json has no 'start'"),
        (["--fp16"], "--fp16 is not supported"),
        (
            ["--eval-function-path", "json.dumps"],
            "--eval-function-path has no effect without --eval-interval",
        ),
        (["--profile-step-end", "5"], "--profile-step-end would change nothing: it needs --profile"),
        (["--wandb-project", "p"], "--wandb-project would change nothing: it needs --use-wandb"),
        (["--load-debug-rollout-data-subsample", "0.5"], "it needs --load-debug-rollout-data"),
    ],
)
def test_invalid_settings_are_rejected_in_one_line(
    words: list[str], extra: list[str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)) as caught:
        parse_args([*words, *extra], env={})
    assert "\n" not in str(caught.value)


def test_adapters_are_switched_on_by_any_of_their_flags(words: list[str]) -> None:
    """Documents show LORA_ARGS with and without --use-lora."""
    off = parse_args(words, env={})
    assert (off.use_lora, off.lora_rank) == (False, None)
    args = parse_args([*words, "--use-lora", "--lora-rank", "16", "--lora-alpha", "32"], env={})
    assert (args.use_lora, args.lora_rank, args.lora_alpha, args.lora_dropout) == (True, 16, 32.0, 0.0)
    args = parse_args([*words, "--lora-rank", "64", "--lora-alpha", "128", "--lora-dropout", "0.05"], env={})
    assert (args.use_lora, args.lora_rank, args.lora_dropout) == (True, 64, 0.05)
    args = parse_args([*words, "--use-lora"], env={})
    assert (args.lora_rank, args.lora_alpha) == (8, 16.0)


def test_only_adapters_are_sent_to_engines_that_merge_them(words: list[str]) -> None:
    assert parse_args(words, env={}).ship_adapters is False
    assert parse_args([*words, "--use-lora"], env={}).ship_adapters is True
    assert parse_args([*words, "--use-lora", "--no-ship-adapters"], env={}).ship_adapters is False
    sglang = [*words, "--use-lora", "--rollout-backend", "sglang"]
    assert parse_args(sglang, env={}).ship_adapters is False
    with pytest.raises(ConfigError, match="the adapter's name in every request"):
        parse_args([*sglang, "--ship-adapters"], env={})
    with pytest.raises(ConfigError, match="--ship-adapters needs --use-lora"):
        parse_args([*words, "--ship-adapters"], env={})


@pytest.fixture
def trained(words: list[str]) -> list[str]:
    """Returns the command line of a run that trains adapters of people."""
    rollout = ["--rollout-function-path", "openclaw.trainer_hooks.lease.generate_rollout"]
    return [*words, *rollout, "--disable-rollout-global-dataset", "--train-adapters", "per-key"]


def test_training_adapters_of_people_switches_lora_on(trained: list[str]) -> None:
    args = parse_args(trained, env={})
    assert (args.use_lora, args.lora_rank, args.train_adapters) == (True, 8, "per-key")
    assert parse_args(trained[:-2], env={"TRAIN_ADAPTERS": "ada,bob"}).train_adapters == "ada,bob"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--train-backend", "megatron"], "needs --train-backend fsdp"),
        (["--rollout-backend", "sglang"], "needs --rollout-backend embedded"),
        (
            ["--rollout-function-path", "slime.rollout.sglang_rollout.generate_rollout"],
            "sets the adapter of a batch",
        ),
        (["--lora-modules-to-save", "lm_head"], "only low-rank factors"),
        (["--load", "."], "new adapters have no effect"),
        (["--async-save"], "must be complete on disk"),
        (["--ref-update-interval", "2", "--use-kl-loss", "--kl-loss-coef", "0.1"], "the frozen base"),
        (["--advantage-estimator", "ppo"], "one critic for all"),
    ],
)
def test_flags_that_conflict_with_adapters_of_people_are_rejected(
    trained: list[str], more: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"--train-adapters.*{message}"):
        parse_args([*trained, *more], env={})


def test_the_parent_of_adapters_is_none_of_this_run(
    words: list[str], trained: list[str], tmp_path: Path
) -> None:
    own = ["--save", str(tmp_path / "save"), "--adapter-parent"]
    elsewhere = str(tmp_path / "save2")
    assert parse_args([*trained, *own, elsewhere], env={}).adapter_parent == elsewhere
    with pytest.raises(ConfigError, match="is in this run's --save"):
        parse_args([*trained, *own, str(tmp_path / "save" / "policies" / "ada")], env={})
    with pytest.raises(ConfigError, match="--adapter-parent needs --train-adapters"):
        parse_args([*words, *own, elsewhere], env={})


def test_a_custom_loss_file_needs_no_name_or_loss_type_and_adds_its_flags(
    words: list[str], tmp_path: Path
) -> None:
    assert parse_args([*words, "--custom-loss-function-path", EXAMPLE], env={}).loss_type == "custom_loss"
    (tmp_path / "loss.py").write_text(
        Path(EXAMPLE).read_text() + "\ndef add_arguments(p):\n    p.add_argument('--width', type=float)\n"
    )
    own = ["--custom-loss-function-path", str(tmp_path / "loss.py"), "--width", "0.5"]
    args: Any = parse_args([*words, *own], env={})
    assert args.width == 0.5


def test_bounds_and_rules_of_a_plug_ins_flags_are_checked_at_once(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text(
        PLUGIN
        + """
from dataclasses import dataclass
from claw_base.settings.declare import flag, needs

@dataclass(frozen=True)
class Paint:
    layers: int = flag(1, "layers of paint", least=1)
    gloss: bool = flag(False, "shine", rules=[needs("layers")])

FLAGS = (Paint,)
"""
    )
    args: Any = parse_args([*words, "--layers", "2", "--gloss"], env={})
    assert (args.layers, args.gloss, args.colour) == (2, True, "red")
    with pytest.raises(ConfigError, match="--layers must be 1 or more, got 0"):
        parse_args([*words, "--layers", "0"], env={})
    with pytest.raises(ConfigError, match="--gloss would change nothing: it needs --layers"):
        parse_args([*words, "--gloss"], env={})


def test_normalising_groups_of_one_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="every advantage 0"):
        parse_args(words[:-1], env={})
    assert parse_args([*words[:-1], "--n-samples-per-prompt", "2"], env={}).global_batch_size == 8


def test_an_invalid_environment_value_is_reported_with_its_variable(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="MAX_TOKENS_PER_GPU=many"):
        parse_args(words, env={"MAX_TOKENS_PER_GPU": "many"})


def test_decay_steps_follow_from_the_number_of_rollouts(words: list[str]) -> None:
    more = ["--lr-decay-style", "linear", "--num-rollout", "10", "--num-steps-per-rollout", "2"]
    assert parse_args([*words, *more], env={}).lr_decay_iters == 20


def test_every_flag_has_an_effect() -> None:
    """Each declared flag is read outside its declaration and its checks."""
    files = [path for path in SOURCE.parent.rglob("*.py") if not {"arguments", "flags"} & {*path.parts}]
    code = "\n".join(path.read_text() for path in [*files, SOURCE / "flags" / "cluster.py"])
    names = [item.name for group in GROUPS for item in flags_of(group)]
    assert len(names) == len(set(names))
    acts_in_the_checks = {
        "advantage_estimator",
        "custom_config_path",
        "lr_warmup_fraction",
        "num_epoch",
        "prm_teacher_hf_checkpoint",  # by its name, in slime.plan.model_servers
        "prm_model_path",  # in the config of a get_reward_model(config)
        "disable_rollout_global_dataset",
        "n_samples_per_prompt",
        "rollout_external",  # needs the addresses, which have the effect
        "num_steps_per_rollout",
        "rollout_batch_size",
        "train_backend",
    }
    # an attribute of one of the three names, which may be chained; all in one pass over the code
    read = {*re.findall(r"(?:args|self|settings)(?=\.(\w+))", code)}
    read |= {*re.findall(r'load_hooks?\([\w.]+, "(\w+)"\)', code)}
    assert set(names) - read <= acts_in_the_checks


def test_every_flag_has_a_sentence_and_the_documentation_table_has_it() -> None:
    table = subprocess.run(
        [sys.executable, "-m", "slime.arguments", "--markdown"], capture_output=True, text=True
    )
    for item in (item for group in GROUPS for item in flags_of(group)):
        assert f"`{item.options[0]}`" in table.stdout
        assert len(item.help) > 10


def test_reading_arguments_needs_no_torch() -> None:
    code = (
        "import sys, slime.arguments, slime.types, slime.training.schedule; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_long_help_lists_plugin_flags_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_args([*words, "--help-all"], env={})
    shown = capsys.readouterr().out
    assert "--colour" in shown
    assert all(item.options[0] in shown for group in GROUPS for item in flags_of(group))


def test_the_short_help_lists_what_a_person_sets_and_names_the_long_one(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_args([*words, "--help"], env={})
    listed = re.findall(r"^  (--[a-z0-9-]+)", shown := capsys.readouterr().out, re.MULTILINE)
    assert set(listed) == {item.options[0] for group in GROUPS for item in flags_of(group) if item.main}
    assert {"--hf-checkpoint", "--lr", "--use-lora", "--gate", "--save", "--rollout-backend"} < set(listed)
    assert 25 <= len(listed) <= 40
    assert "--help-all" in shown


def test_a_run_records_its_arguments_without_keys(tmp_path: Path) -> None:
    args = Arguments(hf_checkpoint="model", run_dir=str(tmp_path), lr=2e-3)
    args.judge_api_key = "secret"  # type: ignore[attr-defined]
    write_arguments(tmp_path, args)
    known = read_arguments(tmp_path)
    assert "secret" not in (tmp_path / "arguments.json").read_text()
    assert Arguments(**known) == Arguments(hf_checkpoint="model", run_dir=str(tmp_path), lr=2e-3)
    with pytest.raises(ConfigError, match=r"cannot read .*arguments\.json"):
        read_arguments(tmp_path / "elsewhere")
