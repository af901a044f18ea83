"""Flags: the optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs

WITH_END = ("linear", "cosine", "WSD")
OF_WSD = needs(
    lr_decay_style="WSD", text="--lr-wsd-decay-iters and --lr-wsd-decay-style need --lr-decay-style WSD"
)


@dataclass
class OptimizerArguments:
    """Optimizer (AdamW) and learning rate."""

    lr: float = flag(1e-6, "peak learning rate", least=0, main=True)
    min_lr: float = flag(
        0.0,
        "final learning rate",
        least=0,
        rules=[
            excludes(lr_decay_style="constant", text="{flag} needs a --lr-decay-style other than constant")
        ],
    )
    lr_decay_style: Literal["constant", "linear", "cosine", "inverse-square-root", "WSD"] = flag(
        "constant", "decay of the learning rate; WSD: warm-up, stable, decay"
    )
    lr_warmup_iters: int = flag(0, "optimizer steps of linear warm-up", least=0)
    lr_warmup_fraction: float | None = flag(
        None,
        "warm-up as a share of --lr-decay-iters; replaces --lr-warmup-iters",
        least=0,
        below=1,
        rules=[
            excludes(
                "lr_warmup_iters",
                text="--lr-warmup-fraction and --lr-warmup-iters are exclusive; drop one of them",
            )
        ],
    )
    lr_wsd_decay_iters: int | None = flag(
        None,
        "number of final steps in which WSD decays (default: a tenth of --lr-decay-iters)",
        rules=[OF_WSD],
    )
    lr_wsd_decay_style: Literal["linear", "cosine", "exponential", "minus_sqrt"] = flag(
        "exponential", "shape of WSD's decay", rules=[OF_WSD]
    )
    lr_decay_iters: int | None = flag(
        None,
        "optimizer steps until --min-lr (default: those of --num-rollout)",
        least=1,
        rules=[
            needs(
                "lr_warmup_fraction",
                lr_decay_style=WITH_END,
                text="{flag} needs --lr-decay-style linear, cosine or WSD",
            )
        ],
    )
    weight_decay: float = flag(0.0, "decoupled weight decay", least=0)
    adam_beta1: float = flag(0.9, "decay of the first moment", least=0, below=1)
    adam_beta2: float = flag(0.95, "decay of the second moment", least=0, below=1)
    adam_eps: float = flag(1e-8, "added to the root of the second moment", above=0)
    clip_grad: float = flag(1.0, "maximum norm of the gradient; 0: no limit", least=0)
    lr_batch_reference: int = flag(
        0,
        "batch size for the full learning rate; smaller batches get sqrt(n / this); 0: off",
        least=0,
    )
    extra_decay_steps: int = flag(
        0,
        "learning rate of distilled extra steps falls linearly to 0 over an update's last N; 0: constant",
        least=0,
    )
    average_steps: float = flag(
        0.0,
        "decay of the weight average over an update's steps; 0: use the last step",
        least=0,
        below=1,
        rules=[
            excludes(
                train_backend="rented",
                text="{flag} does not support rented models, whose weights are at the service; drop it",
            )
        ],
    )
