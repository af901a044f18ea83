"""Refuses ways to compute activations again that contradict each other or that the backend does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.parallel import ParallelArguments

MODULES = ("core_attn", "mlp")
EVERY_LAYER = ("full", "uniform", 1)


def check_recompute(args: Arguments) -> None:
    """Checks the flags and fills in `recompute_modules`; Megatron-LM's words for every layer are taken by both backends.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    if args.recompute_granularity == "selective":
        _choose_modules(args)
    asked = (args.recompute_granularity, args.recompute_method, args.recompute_num_layers)
    if asked == EVERY_LAYER:
        args.gradient_checkpointing = True
        if args.train_backend != "megatron":
            args.recompute_granularity = args.recompute_method = args.recompute_num_layers = None
    elif args.recompute_granularity is not None:
        if args.train_backend != "megatron":
            raise ConfigError(
                "--recompute-granularity: --train-backend fsdp computes every layer again or none; use "
                "--gradient-checkpointing"
            )
        if args.gradient_checkpointing:
            raise ConfigError(
                "--gradient-checkpointing computes every layer again; drop it or --recompute-granularity"
            )


def _choose_modules(args: ParallelArguments) -> None:
    args.recompute_modules = args.recompute_modules or MODULES[0]
    for name in args.recompute_modules.split(","):
        if name not in MODULES:
            raise ConfigError(
                f"--recompute-modules {name}: these can be computed again: {', '.join(MODULES)}"
            )
