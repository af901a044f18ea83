"""AdamW and the learning rate of each step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn


def build_optimizer(model: nn.Module, args: Any) -> torch.optim.AdamW:
    """AdamW over the trainable parameters. The learning rate is set before every step."""
    return torch.optim.AdamW(
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        lr=args.lr,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_eps,
        weight_decay=args.weight_decay,
    )


def learning_rate(args: Any, step: int) -> float:
    """Learning rate of optimizer step `step`, from 0: linear warm-up, then the chosen decay to `min_lr`."""
    warmup = args.lr_warmup_iters
    if step < warmup:
        return float(args.lr * (step + 1) / warmup)
    if args.lr_decay_style == "constant":
        return float(args.lr)
    progress = min(1.0, (step - warmup) / (args.lr_decay_iters - warmup))
    share = 1 - progress if args.lr_decay_style == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return float(args.min_lr + (args.lr - args.min_lr) * share)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
