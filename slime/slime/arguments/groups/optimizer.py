"""Flags: the optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.arguments.declare import flag


@dataclass
class OptimizerArguments:
    """Optimizer (AdamW) and learning rate."""

    lr: float = flag(1e-6, "highest learning rate")
    min_lr: float = flag(0.0, "learning rate at the end of the decay")
    lr_decay_style: Literal["constant", "linear", "cosine", "inverse-square-root", "WSD"] = flag(
        "constant", "how the learning rate falls; WSD: warm-up, stable, decay"
    )
    lr_warmup_iters: int = flag(0, "optimizer steps of linear warm-up")
    lr_warmup_fraction: float | None = flag(
        None, "share of the steps until --lr-decay-iters, in place of --lr-warmup-iters"
    )
    lr_wsd_decay_iters: int | None = flag(
        None, "last steps, in which WSD decays (default: a tenth of --lr-decay-iters)"
    )
    lr_wsd_decay_style: Literal["linear", "cosine", "exponential", "minus_sqrt"] = flag(
        "exponential", "how WSD decays"
    )
    lr_decay_iters: int | None = flag(
        None, "optimizer steps until --min-lr (default: those of --num-rollout)"
    )
    weight_decay: float = flag(0.0, "decoupled weight decay")
    adam_beta1: float = flag(0.9, "decay of the first moment")
    adam_beta2: float = flag(0.95, "decay of the second moment")
    adam_eps: float = flag(1e-8, "added to the root of the second moment")
    clip_grad: float = flag(1.0, "largest norm of the gradient; 0 does not clip")
