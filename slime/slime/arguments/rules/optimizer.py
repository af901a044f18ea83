"""Refuses optimizer settings that contradict each other; derives when the learning rate decays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.errors import ConfigError
from slime.flags.optimizer import WITH_END
from slime.flags.rollout import UNBOUNDED

if TYPE_CHECKING:
    from slime.flags import Arguments


def check_optimizer(args: Arguments) -> None:
    """Checks the optimizer and fills in `lr_decay_iters`, `lr_warmup_iters` and `lr_wsd_decay_iters`.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    if args.min_lr > args.lr:
        raise ConfigError(f"--min-lr {args.min_lr} is above --lr {args.lr}")
    if args.lr_decay_style in WITH_END or args.lr_warmup_fraction is not None:
        _resolve_end(args)
    _resolve_warmup(args)
    if args.lr_decay_style == "WSD":
        _resolve_stable(args)


def _resolve_end(args: Arguments) -> None:
    if args.lr_decay_iters is None:
        if args.num_rollout is None or args.num_rollout == UNBOUNDED:
            flag = "--lr-warmup-fraction" if args.lr_warmup_fraction is not None else "--lr-decay-style"
            raise ConfigError(f"{flag} needs an end: give --lr-decay-iters or --num-rollout")
        assert args.global_batch_size is not None
        samples = args.rollout_batch_size * args.n_samples_per_prompt
        args.lr_decay_iters = args.num_rollout * args.train_epochs * -(-samples // args.global_batch_size)


def _resolve_warmup(args: Arguments) -> None:
    if args.lr_warmup_fraction is not None:
        assert args.lr_decay_iters is not None
        args.lr_warmup_iters = round(args.lr_warmup_fraction * args.lr_decay_iters)
        args.lr_warmup_fraction = None
    if args.lr_decay_style in WITH_END and (args.lr_decay_iters or 0) <= args.lr_warmup_iters:
        raise ConfigError(f"--lr-warmup-iters {args.lr_warmup_iters} leaves no step to decay in")


def _resolve_stable(args: Arguments) -> None:
    assert args.lr_decay_iters is not None
    if args.lr_wsd_decay_iters is None:
        args.lr_wsd_decay_iters = max(1, args.lr_decay_iters // 10)
    room = args.lr_decay_iters - args.lr_warmup_iters
    if not 1 <= args.lr_wsd_decay_iters <= room:
        raise ConfigError(f"--lr-wsd-decay-iters must be from 1 to {room}, got {args.lr_wsd_decay_iters}")
