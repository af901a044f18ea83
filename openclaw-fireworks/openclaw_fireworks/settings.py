"""Variables and flags of `run_openclaw_fireworks.py`, with the names that OpenClaw-RL's Fireworks folder uses."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from claw_base.settings.declare import flag
from openclaw_fireworks.account import FOR_EVER, api_url, check_sdk, read_key
from openclaw_fireworks.renting import rent
from rented_run.flags import RentedFlags
from rented_run.main import Cloud
from rented_run.words import driver_words
from slime.errors import ConfigError

SERVICE = "openclaw_fireworks.service:FireworksService"
JUDGES = ("openai", "rules")
SHAPE = re.compile(r"accounts/[^/]+/trainingShapes/[^/]+(/versions/[^/]+)?")
NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
FULL_TRAINING = (
    "LORA_RANK 0: training all weights needs a second trainer for the teacher that stays as it is, which is not rented "
    "here; take a rank of 1 or more"
)
DRIFTS = (
    "--judge-backend {given}: the deployment's weights change with training, and a judge must not; take openai (the base "
    "model without a deployment, or any other at JUDGE_URL) or rules"
)
NO_GATE = "--gate compares a candidate with the live version, and a deployment answers with one set of weights; drop it"


@dataclass
class FireworksFlags(RentedFlags):
    """Flags that only Fireworks has, or whose names or defaults differ there."""

    method: str = flag("combine", "rl, opd, combine or hybrid", env=("METHOD",))
    model_name: str = flag(
        "accounts/fireworks/models/qwen3-8b", "base model, by its resource name", env=("BASE_MODEL",)
    )
    tokenizer_model: str = flag("Qwen/Qwen3-8B", "the base model's name on the hub", env=("TOKENIZER_MODEL",))
    training_shape: str = flag(
        "accounts/fireworks/trainingShapes/qwen3-8b-128k",
        "training shape, by its resource name",
        env=("TRAINING_SHAPE_ID",),
    )
    deployment: str = flag("openclaw-serving", "name of the serving deployment", env=("DEPLOYMENT_ID",))
    lora_rank: int = flag(32, "rank of the adapter", env=("LORA_RANK",), least=0)
    learning_rate: float = flag(1e-5, "learning rate", env=("LEARNING_RATE",), above=0)
    batch_size: int = flag(16, "turns per collected batch", env=("ROLLOUT_BATCH_SIZE",), least=1)
    gradient_accumulation: int = flag(
        1, "collected batches per optimizer step", env=("GRADIENT_ACCUMULATION",), least=1
    )
    max_steps: int = flag(0, "steps after which the run ends; 0: no limit", env=("MAX_STEPS",), least=0)
    weight_sync_interval: int = flag(
        1, "steps between two live versions", env=("WEIGHT_SYNC_INTERVAL",), least=1
    )
    max_seq_len: int = flag(32768, "most tokens of prompt and answer", env=("MAX_SEQ_LEN",), least=2)
    w_opd: float = flag(1.0, "weight of the teacher in combine and hybrid", env=("W_OPD",), least=0)
    w_rl: float = flag(1.0, "weight of the rewards in combine and hybrid", env=("W_RL",), least=0)
    kl_loss_coef: float = flag(
        0.0, "weight of the KL to the base model; 0: none", env=("KL_LOSS_COEF",), least=0
    )
    prm_enabled: bool = flag(True, "0: use the rules judge, without a model", env=("PRM_ENABLED",))
    judge_backend: str = flag(
        "openai",
        "openai: the base model without a deployment, or JUDGE_MODEL at JUDGE_URL; rules: no model",
        env=("JUDGE_BACKEND",),
    )
    eval_mode: bool = flag(
        False, "with opd, also request scores, for the plot only", env=("OPENCLAW_EVAL_MODE",)
    )
    proxy_port: int = flag(30000, "port to listen on", env=("SERVER_PORT", "PORT"), least=1, most=65535)
    served_model_name: str = flag("default", "name of the model in the API", env=("SERVED_MODEL_NAME",))
    prices: str = flag("", "JSON file of prices, see README.md", env=("FIREWORKS_PRICES", "PRICES"))


def words_for(flags: FireworksFlags, folder: Path, env: Mapping[str, str]) -> list[str]:
    """Returns the driver's command line. Raises ConfigError for flags that cannot work."""
    check(flags)
    whole = replace(
        flags,
        batch_size=flags.batch_size * flags.gradient_accumulation * flags.weight_sync_interval,
        max_steps=math.ceil((flags.max_steps or FOR_EVER) / flags.weight_sync_interval),
        judge_backend=flags.judge_backend if flags.prm_enabled else "rules",
    )
    words = driver_words(whole, SERVICE, api_url(env), folder, flags.tokenizer_model)
    words += ["--context-length", str(flags.max_seq_len)]
    words += ["--num-steps-per-rollout", str(flags.weight_sync_interval)]
    if whole.judge_backend == "openai":
        words += ["--judge-url", env.get("JUDGE_URL") or f"{api_url(env)}/inference/v1"]
        words += ["--judge-model", env.get("JUDGE_MODEL") or flags.model_name]
    return words


def check(flags: FireworksFlags) -> None:
    """Raises ConfigError for flags that Fireworks does not support."""
    if flags.lora_rank == 0:
        raise ConfigError(FULL_TRAINING)
    if flags.judge_backend not in JUDGES:
        raise ConfigError(DRIFTS.format(given=flags.judge_backend))
    if flags.gate:
        raise ConfigError(NO_GATE)
    if not SHAPE.fullmatch(flags.training_shape):
        raise ConfigError(
            f"TRAINING_SHAPE_ID {flags.training_shape!r} is not a training shape: accounts/fireworks/trainingShapes/NAME"
        )
    if not NAME.fullmatch(flags.deployment):
        raise ConfigError(
            f"DEPLOYMENT_ID {flags.deployment!r} is not a name: small letters, digits and dashes, a letter first"
        )


def provision(flags: FireworksFlags, folder: Path) -> dict[str, str]:
    """Rents trainer and deployment; returns environment variables for the run's processes. Raises ConfigError."""
    rented = rent(flags.model_name, flags.lora_rank, flags.training_shape, flags.deployment, folder)
    variables = {"FIREWORKS_TRAINER_JOB": rented.job, "FIREWORKS_DEPLOYMENT": rented.deployment}
    judge = "JUDGE_API_KEY"
    if not os.environ.get(judge) and not os.environ.get("JUDGE_URL"):
        variables[judge] = read_key()
    if key := os.environ.get("EXPECTED_API_KEY"):
        variables.setdefault("SGLANG_API_KEY", os.environ.get("SGLANG_API_KEY") or key)
    return variables


FIREWORKS = Cloud(
    "fireworks",
    "Serve at home, sample and train at Fireworks AI.",
    FireworksFlags,
    words_for,
    check_sdk,
    read_key,
    provision,
)
