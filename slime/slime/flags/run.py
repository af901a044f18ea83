"""Flags: the run folder, the loop, time-outs, and reporting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs
from slime.flags.shared import KEEPS_MEMORY, not_by_megatron


@dataclass
class RunArguments:
    """Run: folder and seed."""

    run_dir: str = flag(
        "runs/slime", "folder of the run: process records, logs, live weights", env=("RUN_DIR",), main=True
    )
    seed: int = flag(1234, "seed of all random numbers of the trainer")
    custom_config_path: str | None = flag(
        None, "YAML file of flags and plug-in values by name; overrides the command line"
    )


@dataclass
class LoopArguments:
    """Loop: which parts alternate, are skipped, or are replayed."""

    train_epochs: int = flag(
        1, "passes over the batch of each rollout", env=("TRAIN_EPOCHS",), least=1, main=True
    )
    colocate: bool = flag(False, "engines and trainers share processors or GPUs and alternate", main=True)
    offload_rollout: bool | None = flag(
        None,
        "make engines release their memory during training (default: with --colocate)",
        rules=[
            excludes(
                offload_rollout=True,
                rollout_backend="vllm",
                text=f"--offload-rollout (which --colocate means): vLLM {KEEPS_MEMORY}, or add --no-offload-rollout",
            )
        ],
    )
    offload_train: bool | None = flag(
        None,
        "move trainers to CPU memory during generation (default: with --colocate on GPUs, fsdp)",
        rules=[not_by_megatron("weights and optimizer states stay on the GPU", offload_train=True)],
    )
    debug_rollout_only: bool = flag(
        False,
        "only collect rollouts; no trainer starts",
        rules=[
            excludes(
                "debug_train_only",
                text="--debug-rollout-only and --debug-train-only are exclusive; drop one of them",
            )
        ],
    )
    debug_train_only: bool = flag(False, "train without starting engines and services")
    save_debug_rollout_data: str | None = flag(
        None,
        "file (JSON, .json.gz) for the samples of each rollout; {rollout_id} is replaced "
        "(evaluations: eval_N)",
    )
    load_debug_rollout_data: str | None = flag(
        None, "files of recorded samples to replay instead of collecting rollouts; implies --debug-train-only"
    )
    load_debug_rollout_data_subsample: float = flag(
        1.0,
        "share of each replayed file's samples, from its start and end",
        above=0,
        most=1,
        rules=[needs("load_debug_rollout_data")],
    )
    profile: bool = flag(
        False, "write a torch profiler trace to RUN_DIR/profile", aliases=("--use-pytorch-profiler",)
    )
    profile_step_start: int = flag(1, "first rollout to profile", rules=[needs("profile")])
    profile_step_end: int = flag(2, "first rollout after the profile", rules=[needs("profile")])


@dataclass
class CheckpointArguments:
    """Checkpoints: how they are written, and which parts are loaded."""

    async_save: bool = flag(False, "write checkpoints in the background; the run waits for the last one")
    update_weight_disk_dir: str = flag(
        "",
        "folder of this run's weight versions (default: weights in --save; /dev/shm: in memory)",
    )
    save_hf: str | None = flag(
        None, "folder for a Hugging Face model at every checkpoint; {rollout_id} in it is replaced"
    )
    reset_optimizer_states: bool = flag(
        False,
        "use only the weights of --load, without its optimizer and learning-rate schedule",
        rules=[needs("load", text="{flag} needs a checkpoint: set --load")],
    )


STARTS = {"embedded": 300.0, "sglang": 1200.0, "vllm": 1200.0, "rented": 300.0}
"""Default time limit of an engine's start in seconds; engines that build kernels need longer the first
time."""


@dataclass
class LimitArguments:
    """Time limits, in seconds; 0: no limit."""

    ray_start_timeout: float = flag(180.0, "time limit of Ray's start, seconds", least=0)
    engine_start_timeout: float | None = flag(
        None,
        "time limit of an engine's start, seconds (default: 300; SGLang and vLLM: 1200)",
        least=0,
    )
    load_timeout: float | None = flag(
        None,
        "time limit of loading a model, seconds (default: 1800, large models more; 0: none)",
        least=0,
    )
    rollout_timeout: float = flag(
        0.0, "time limit of a rollout, seconds; then its rollout manager is restarted", least=0
    )
    eval_timeout: float = flag(3600.0, "time limit of an evaluation, seconds", least=0)
    train_timeout: float = flag(
        3600.0, "time limit of a training step, seconds; then the trainer is restarted", least=0
    )
    save_timeout: float | None = flag(
        None,
        "time limit of a checkpoint or a weight export, seconds (default: 1800, more for large models; 0: no limit)",
        least=0,
    )
    weight_update_timeout: float | None = flag(
        None,
        "time limit of one stage of a weight update on one engine, seconds (default: 300, more for "
        "large models; 0: no limit)",
        least=0,
    )
    stop_timeout: float | None = flag(
        None,
        "time limit of saving at a stop, seconds (default: 120, large models more; 0: none)",
        least=0,
    )
    health_timeout: float = flag(
        60.0, "time limit of a helper process's heartbeat, seconds; then it is restarted", least=0
    )

    @property
    def engine_start_limit(self) -> float:
        """Returns the time limit of an engine's start in seconds; infinity for 0."""
        return (
            STARTS["embedded"] if self.engine_start_timeout is None else self.engine_start_timeout or math.inf
        )


@dataclass
class TrackingArguments:
    """Logging; RUN_DIR/metrics.jsonl and RUN_DIR/logs/training.log are always written."""

    use_tensorboard: bool = flag(True, "write TensorBoard events")
    tensorboard_dir: str = flag("", "folder of TensorBoard events (default: RUN_DIR/tensorboard)")
    use_wandb: bool = flag(False, "log to Weights & Biases (pip install wandb)", main=True)
    wandb_mode: Literal["online", "offline", "disabled"] | None = flag(
        None, "W&B mode (default: its own)", rules=[needs("use_wandb")]
    )
    wandb_project: str | None = flag(None, "W&B project", rules=[needs("use_wandb")])
    wandb_team: str | None = flag(None, "W&B team or user", rules=[needs("use_wandb")])
    wandb_group: str | None = flag(None, "group of the run in W&B", rules=[needs("use_wandb")])
    wandb_run_id: str | None = flag(
        None, "W&B run to resume (default: the one started in RUN_DIR)", rules=[needs("use_wandb")]
    )
    wandb_dir: str | None = flag(None, "folder of W&B's files (default: RUN_DIR)", rules=[needs("use_wandb")])
    wandb_always_use_train_step: bool = flag(
        False, "use optimizer steps as W&B steps, instead of rollouts", rules=[needs("use_wandb")]
    )
    use_trackio: bool = flag(False, "log to trackio, a local dashboard (pip install trackio: 170 MB)")
    trackio_project: str | None = flag(None, "trackio project (default: slime)", rules=[needs("use_trackio")])
    keep_token_records: int = flag(
        0,
        "rollouts kept in RUN_DIR/token_records (advantage, log-prob and teacher of each trained "
        "token); 0: none",
        least=0,
    )
    progress: Literal["auto", "bar", "lines"] = flag(
        "auto", "progress bar, or a line per rollout; auto: a bar in a terminal"
    )
