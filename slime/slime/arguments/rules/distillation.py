"""Rejects invalid distillation settings; derives where the teacher runs and which ids it scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.settings.declare import option
from claw_base.settings.rules import default_of
from slime.errors import ConfigError
from slime.flags.distillation import DistillationArguments
from slime.plugins import split_path

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.losses import LossSpec

SOURCES = {
    **dict.fromkeys(("trainer", "megatron", "mcore"), "trainer"),
    **dict.fromkeys(("inference", "infer", "sglang", "rollout"), "inference"),
}
DEFAULTS = {field.name: default_of(field) for field in fields(DistillationArguments)}
ONLY_TOPK = ("distill_topk", "distill_subset_mode", "hint_selection", "hint_m")
ONLY_TRAINER = ("teacher_model", "teacher_guidance", "hint_selection", "hint_m")


def check_distillation(args: Arguments) -> None:
    """Checks the teacher and its use.

    Raises:
        ConfigError: names the contradiction and the remedy.
    """
    own = spec_of(args)
    if own is None or own.distils != "topk":
        _refuse(args, ONLY_TOPK, loss_flag(args), "it is for losses over likely ids of a teacher")
    _check_source(args, own is not None and own.distils is not None)
    if own is not None and own.distils:
        _check_loss(args, own)
        if own.distils == "topk":
            _check_topk(args, own)


def spec_of(args: Arguments) -> LossSpec | None:
    """Returns the loss of --loss-spec-path; None for built-in losses, which the flags describe completely.

    Raises:
        ConfigError: it cannot be loaded, or rejects the flags.
    """
    if not args.loss_spec_path or args.loss_type == "sft_loss":
        return None
    from slime.training.core.objective import own_spec  # imports torch

    return own_spec(args)


def loss_flag(args: Arguments) -> str:
    """Returns the flag that selects the loss, with its value."""
    if args.loss_spec_path:
        return f"--loss-spec-path {args.loss_spec_path}"
    return f"--loss-type {args.loss_type}"


def _refuse(args: Arguments, names: Sequence[str], where: str, why: str) -> None:
    for name in names:
        if vars(args)[name] != DEFAULTS[name]:
            raise ConfigError(f"{option(name)} has no effect with {where}, {why}; drop it")


def _check_source(args: Arguments, own: bool) -> None:
    """Checks where the teacher runs. `own`: the loss of --loss-spec-path includes distillation."""
    distils = args.use_opd or args.advantage_estimator == "on_policy_distillation"
    if distils and own:
        raise ConfigError(
            f"{loss_flag(args)} includes distillation; remove --use-opd and --advantage-estimator "
            "on_policy_distillation"
        )
    source = args.teacher_source or ("trainer" if own else "inference")
    if source not in SOURCES:
        raise ConfigError(f"--teacher-source {source} must be one of {', '.join(SOURCES)}")
    args.teacher_source = SOURCES[source]
    if args.teacher_source == "trainer" and not (distils or own):
        raise ConfigError(
            f"--teacher-source {source}: {loss_flag(args)} uses no teacher; remove --teacher-source"
        )
    if args.teacher_source == "inference":
        _refuse(args, ONLY_TRAINER, "--teacher-source inference", "it configures a teacher in the trainer")
        return
    if args.teacher_model in ("base", "self"):
        return
    folder = Path(args.teacher_model).expanduser().resolve()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"--teacher-model {args.teacher_model} must be base, self, or the folder of a Hugging Face model"
        )
    args.teacher_model = str(folder)
    sizes = vocabulary_size(args.teacher_model), vocabulary_size(args.hf_checkpoint)
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"--teacher-model {folder} has {sizes[0]} tokens, but the student has {sizes[1]}; a "
            "teacher needs the same vocabulary"
        )


def _check_loss(args: Arguments, own: LossSpec) -> None:
    loss = split_path(args.loss_spec_path or "")[1] or args.loss_spec_path
    if args.use_rollout_logprobs:
        raise ConfigError(
            f"--use-rollout-logprobs: {loss} compares log-probs of the trainer on both sides; drop it"
        )
    if args.normalize_advantages and own.needs_advantages:
        raise ConfigError(f"--normalize-advantages would whiten only the rewards in {loss}; drop it")
    if args.advantage_estimator in ("gspo", "cispo"):
        raise ConfigError(
            f"--advantage-estimator {args.advantage_estimator} also selects a policy loss, but "
            f"the loss is {loss}; use grpo"
        )


def _check_topk(args: Arguments, own: LossSpec) -> None:
    if args.distill_subset_mode is None:
        args.distill_subset_mode = own.subset
    if args.teacher_source == "inference" and args.distill_subset_mode == "student":
        raise ConfigError(
            "--distill-subset-mode student needs ids that only the trainer knows; use "
            "--teacher-source trainer, or the ids of the teacher"
        )
    vocabulary = vocabulary_size(args.hf_checkpoint)
    if not 1 <= args.distill_topk <= vocabulary:
        raise ConfigError(
            f"{loss_flag(args)} needs --distill-topk from 1 to {vocabulary} (the vocabulary), got "
            f"{args.distill_topk}"
        )


def vocabulary_size(folder: str | None) -> int:
    """Returns the number of tokens for which the model in `folder` has logits.

    Raises:
        ConfigError: its config.json does not contain it.
    """
    config = json.loads((Path(folder or "") / "config.json").read_text(encoding="utf-8"))
    size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    if not isinstance(size, int):
        raise ConfigError(f"{folder}/config.json has no vocab_size")
    return size
