"""Refuses distillation that cannot work; derives where the teacher is and whose ids it is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slime.arguments.declare import option
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments

OVER_TOPK = ("opd_topk", "topk_select")
LOSSES = (*OVER_TOPK, "combine")
SOURCES = {
    **dict.fromkeys(("trainer", "megatron", "mcore"), "trainer"),
    **dict.fromkeys(("inference", "infer", "sglang", "rollout"), "inference"),
}
WEIGHTS = {"topk_select": ("topk_w_rl", "topk_w_opd"), "combine": ("combine_w_rl", "combine_w_opd")}
ONLY_SELECT = {
    "topk_w_rl": 1.0,
    "topk_w_opd": 1.0,
    "topk_plain_teacher": True,
    "topk_adv_diff_clip": 2.0,
    "topk_eps_clip": None,
    "topk_eps_clip_high": None,
}
ONLY_COMBINE = {"combine_w_rl": 1.0, "combine_w_opd": 1.0}
ONLY_TOPK = {"distill_topk": 0, "distill_subset_mode": None, "hint_selection": "shortest", "hint_m": None}
ONLY_TRAINER = {"teacher_model": "base", "hint_selection": "shortest", "hint_m": None}


def check_distillation(args: Arguments) -> None:
    """Checks the teacher and what it is used for.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    loss = args.loss_type
    for used_by, flags in (
        (("topk_select",), ONLY_SELECT),
        (("combine",), ONLY_COMBINE),
        (OVER_TOPK, ONLY_TOPK),
    ):
        if loss not in used_by:
            _refuse(args, flags, f"--loss-type {loss}", f"it is for {' and '.join(used_by)}")
    _check_weights(args)
    _check_source(args)
    if loss in LOSSES:
        _check_loss(args)
    if loss in OVER_TOPK:
        _check_topk(args)


def check_staleness(args: Arguments) -> None:
    """Checks what becomes of samples that older weights wrote.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    if not 0 <= args.stale_weight <= 1:
        raise ConfigError(f"--stale-weight must be from 0 to 1, got {args.stale_weight}")
    if args.stale_weight and args.max_staleness is None:
        raise ConfigError("--stale-weight needs --max-staleness")
    if args.max_staleness is not None and args.loss_type == "custom_loss":
        raise ConfigError("--max-staleness does not reach into a custom loss; drop it")
    if args.tis_spans != "all" and (not args.use_tis or args.custom_tis_function_path):
        raise ConfigError(f"--tis-spans {args.tis_spans} needs --use-tis without a function of its own")


def _refuse(args: Arguments, flags: Mapping[str, object], where: str, why: str) -> None:
    for name, default in flags.items():
        if getattr(args, name) != default:
            raise ConfigError(f"{option(name)} has no meaning with {where}, {why}; drop it")


def _check_weights(args: Arguments) -> None:
    for loss, names in WEIGHTS.items():
        for name in names:
            if getattr(args, name) < 0:
                raise ConfigError(f"{option(name)} must be 0 or more, got {getattr(args, name)}")
        if args.loss_type == loss and not any(getattr(args, name) for name in names):
            both = " and ".join(option(name) for name in names)
            raise ConfigError(f"{both} are both 0, so nothing would be trained; raise one of them")


def _check_source(args: Arguments) -> None:
    distils = args.use_opd or args.advantage_estimator == "on_policy_distillation"
    if distils and args.loss_type in LOSSES:
        raise ConfigError(
            f"--loss-type {args.loss_type} distils by itself; drop --use-opd and "
            "--advantage-estimator on_policy_distillation"
        )
    given = args.teacher_source or ("trainer" if args.loss_type in LOSSES else "inference")
    if given not in SOURCES:
        raise ConfigError(f"--teacher-source {given} is not one of {', '.join(SOURCES)}")
    args.teacher_source = SOURCES[given]
    if args.teacher_source == "trainer" and not (distils or args.loss_type in LOSSES):
        raise ConfigError(
            f"--teacher-source {given}: there is nothing to teach with --loss-type {args.loss_type}; drop it"
        )
    if args.teacher_source == "inference":
        _refuse(
            args, ONLY_TRAINER, "--teacher-source inference", "it chooses what a teacher in the trainer does"
        )
        return
    if args.teacher_model in ("base", "self"):
        return
    folder = Path(args.teacher_model).expanduser().resolve()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"--teacher-model {args.teacher_model} is neither base nor self nor the folder of a Hugging Face model"
        )
    args.teacher_model = str(folder)
    sizes = vocabulary_size(args.teacher_model), vocabulary_size(args.hf_checkpoint)
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"--teacher-model {folder} has {sizes[0]} tokens and the student {sizes[1]}; a teacher needs the same "
            "vocabulary"
        )


def _check_loss(args: Arguments) -> None:
    loss = args.loss_type
    if args.use_rollout_logprobs:
        raise ConfigError(
            f"--use-rollout-logprobs: {loss} compares log-probs of the trainer on both sides; drop it"
        )
    if args.normalize_advantages and loss != "opd_topk":
        raise ConfigError(f"--normalize-advantages would whiten only the rewards in {loss}; drop it")
    if args.advantage_estimator in ("gspo", "cispo"):
        raise ConfigError(
            f"--advantage-estimator {args.advantage_estimator} names a policy loss too, but the loss is {loss}; "
            "take grpo"
        )
    if loss == "opd_topk":
        unused = {"use_tis": False, "use_opsm": False, "eps_clip_c": None}
        unused |= {"custom_pg_loss_reducer_function_path": None, "custom_advantage_function_path": None}
        _refuse(args, unused, "--loss-type opd_topk", "which has no policy gradient")


def _check_topk(args: Arguments) -> None:
    if args.distill_subset_mode is None:
        args.distill_subset_mode = "teacher" if args.loss_type == "opd_topk" else "student"
    if args.teacher_source == "inference" and args.distill_subset_mode == "student":
        raise ConfigError(
            "--distill-subset-mode student asks the teacher for ids that only the trainer knows; take "
            "--teacher-source trainer, or the ids of the teacher"
        )
    if args.hint_m is not None and args.hint_m < 1:
        raise ConfigError(f"--hint-m must be 1 or more, got {args.hint_m}")
    if args.topk_eps_clip is not None and not 0 <= args.topk_eps_clip < 1:
        raise ConfigError(f"--topk-eps-clip must be 0 or more and below 1, got {args.topk_eps_clip}")
    vocabulary = vocabulary_size(args.hf_checkpoint)
    if not 1 <= args.distill_topk <= vocabulary:
        raise ConfigError(
            f"--loss-type {args.loss_type} needs a --distill-topk from 1 to {vocabulary} (the vocabulary), "
            f"got {args.distill_topk}"
        )


def vocabulary_size(folder: str | None) -> int:
    """Number of tokens that the model in `folder` has logits for.

    Raises:
        ConfigError: its config.json does not say.
    """
    config = json.loads((Path(folder or "") / "config.json").read_text(encoding="utf-8"))
    size = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size")
    if not isinstance(size, int):
        raise ConfigError(f"{folder}/config.json names no vocab_size")
    return size
