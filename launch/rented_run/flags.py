"""Flags and variables of a run on rented GPUs; each provider adds its own and changes defaults."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from claw_base.settings.declare import Flag, convert, flag, flags_of
from slime.errors import ConfigError

METHODS = ("rl", "opd", "combine", "hybrid")


@dataclass
class RentedFlags:
    """Flags of a run on rented GPUs: model, training, address of the server."""

    method: str = flag("rl", "rl, opd, combine or hybrid", env=("METHOD",))
    model_name: str = flag("", "base model, by its name at the service", env=("MODEL_NAME",))
    model_path: str = flag(
        "", "folder of its tokenizer and configuration; no weights are read", env=("MODEL_PATH", "HF_CKPT")
    )
    lora_rank: int = flag(32, "rank of the adapter", env=("LORA_RANK",), least=1)
    teacher_model_name: str = flag(
        "", "teacher model; only the base model itself is supported", env=("TEACHER_MODEL_NAME",)
    )
    learning_rate: float = flag(1e-4, "learning rate", env=("LEARNING_RATE",), above=0)
    batch_size: int = flag(4, "turns a step", env=("BATCH_SIZE",), least=1)
    max_steps: int = flag(1000, "steps after which the run ends", env=("MAX_STEPS",), least=1)
    loss_fn: str = flag("ppo", "ppo, importance_sampling or cispo", env=("LOSS_FN",))
    eps_clip: float = flag(0.2, "lower clip of the ratio", env=("EPS_CLIP",), above=0)
    eps_clip_high: float = flag(0.28, "upper clip of the ratio", env=("EPS_CLIP_HIGH",), above=0)
    kl_loss_coef: float = flag(
        0.02, "weight of the KL to the base model; 0: none", env=("KL_LOSS_COEF",), least=0
    )
    save_interval: int = flag(
        20, "steps between two states from which a run can resume", env=("SAVE_INTERVAL",), least=1
    )
    resume_from_ckpt: str = flag(
        "", "address of a saved state, or folder of a checkpoint, to start from", env=("RESUME_FROM_CKPT",)
    )
    resume: bool = flag(False, "resume from the newest checkpoint of RUN_DIR; fails if there is none")
    w_opd: float = flag(
        1.0, "weight of the teacher in combine and hybrid", env=("OPENCLAW_COMBINE_W_OPD",), least=0
    )
    w_rl: float = flag(
        1.0, "weight of the rewards in combine and hybrid", env=("OPENCLAW_COMBINE_W_RL",), least=0
    )
    train_epochs: int = flag(1, "passes over each batch", env=("TRAIN_EPOCHS",), least=1)
    eval_mode: bool = flag(False, "with opd, also request scores, for the plot only", env=("EVAL_MODE",))
    judge_backend: str = flag(
        "engine",
        "engine: the base model at the service; rules: no model; openai: JUDGE_URL",
        env=("JUDGE_BACKEND",),
    )
    prm_m: int = flag(3, "votes per turn", env=("PRM_M",), least=1)
    prm_temperature: float = flag(0.6, "temperature of the judge", env=("PRM_TEMPERATURE",), least=0)
    prm_max_tokens: int = flag(4096, "tokens of the judge's reply", env=("PRM_MAX_TOKENS",), least=1)
    proxy_host: str = flag("0.0.0.0", "address to listen on", env=("PROXY_HOST", "HOST"))
    proxy_port: int = flag(30000, "port to listen on", env=("PROXY_PORT", "PORT"), least=1, most=65535)
    served_model_name: str = flag("", "name of the model in the API", env=("SERVED_MODEL_NAME",))
    temperature: float = flag(
        1.0,
        "default temperature of requests; log-probs are those of 1",
        env=("DEFAULT_TEMPERATURE",),
        least=0,
        most=2,
    )
    stream_tokens: int = flag(
        0,
        "tokens per streamed chunk; 0: send the whole answer at once",
        env=("STREAM_TOKENS",),
        least=0,
    )
    record_dir: str = flag("", "run folder (default: runs/CLOUD_METHOD)", env=("RUN_DIR", "RECORD_DIR"))
    prices: str = flag("", "JSON file of prices, see README.md", env=("PRICES",))
    max_cost: float | None = flag(None, "US dollars after which training stops", env=("MAX_COST",), above=0)
    gate: bool = flag(False, "check each version before it goes live; costs tokens", env=("GATE",))
    wandb_project: str = flag("", "log to this project of Weights & Biases", env=("WANDB_PROJECT",))
    wandb_run_name: str = flag("", "name of the run there", env=("WANDB_RUN_NAME",))
    wandb_disabled: bool = flag(False, "disable logging to Weights & Biases", env=("WANDB_DISABLED",))
    dry_run: bool = flag(
        False,
        "validate all settings, print the driver's command, start nothing",
        env=("DRY_RUN",),
    )


F = TypeVar("F", bound=RentedFlags)


def parse(
    kind: type[F], title: str, argv: Sequence[str], env: Mapping[str, str] | None = None
) -> tuple[F, list[str]]:
    """Parses flags (which override variables) and variables (which override defaults); other arguments go to the
    driver.

    Args:
        kind: the cloud's flags. title: first line of `--help`.

    Raises:
        ConfigError: an invalid value. SystemExit: after --help.
    """
    env = os.environ if env is None else env
    parser = argparse.ArgumentParser(
        prog="run", description=f"{title} Other flags go to slime/train_async.py.", allow_abbrev=False
    )
    values: dict[str, Any] = {}
    for item in _all_flags(kind):
        named = f"{item.help} ({', '.join(item.env)})" if item.env else item.help
        options: dict[str, Any] = {"action": "store_true"} if item.type is bool else {"type": item.type}
        parser.add_argument(item.options[0], dest=item.name, help=named, default=argparse.SUPPRESS, **options)
        set_ = next((name for name in item.env if env.get(name)), None)
        if set_ is not None:
            values[item.name] = convert(item, set_, env[set_])
    parser.add_argument("--api-key", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    known, rest = parser.parse_known_args(list(argv))
    parsed = vars(known)
    if "api_key" in parsed:
        raise ConfigError(
            "--api-key: everybody on this machine could read it there; export SGLANG_API_KEY (clients must send it)"
        )
    flags = kind(**(values | parsed))
    _check_bounds(flags)
    return flags, rest


def variables(kind: type[RentedFlags]) -> set[str]:
    """Returns the names of a provider's environment variables."""
    return {name for item in _all_flags(kind) for name in item.env}


def _all_flags(kind: type[RentedFlags]) -> list[Flag]:
    """Returns the flags of a provider and of RentedFlags; the provider's win."""
    bases = (base for base in reversed(kind.__mro__) if issubclass(base, RentedFlags))
    return list({item.name: item for base in bases for item in flags_of(base)}.values())


def _check_bounds(flags: RentedFlags) -> None:
    for item in fields(flags):
        bounds, value = item.metadata["bounds"], getattr(flags, item.name)
        if isinstance(value, int | float) and not isinstance(value, bool) and not bounds.hold(value):
            raise ConfigError(f"--{item.name.replace('_', '-')} {value} is not {bounds}")


def folder_of(folder: str, repository: str) -> str:
    """Returns the folder with tokenizer and configuration. Raises ConfigError.

    Args:
        repository: the model's name on the hub, for the error message.
    """
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(
            f"{folder} contains no config.json. Download the tokenizer and configuration (some megabytes) with: "
            f"pip install huggingface_hub; hf download {repository} --include '*.json' '*.jinja' 'merges.txt' "
            "--local-dir models/tokenizer; then set --model-path models/tokenizer"
        )
    return str(Path(folder).resolve())
