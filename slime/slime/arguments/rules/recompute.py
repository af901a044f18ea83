"""Refuses ways to compute activations again that contradict each other or that the backend does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.arguments.declare import option
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments

MODULES = ("core_attn", "mlp")
OF_FULL = ("recompute_method", "recompute_num_layers")
EVERY_LAYER = ("full", "uniform", 1)


def check_recompute(args: Arguments) -> None:
    """Checks the flags and fills in `recompute_modules`; Megatron-LM's words for every layer are taken by both backends.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    _check_granularity(args)
    asked = (args.recompute_granularity, args.recompute_method, args.recompute_num_layers)
    if asked == EVERY_LAYER:
        args.gradient_checkpointing = True
        if args.train_backend == "fsdp":
            args.recompute_granularity = args.recompute_method = args.recompute_num_layers = None
    elif args.recompute_granularity is not None:
        if args.train_backend == "fsdp":
            raise ConfigError(
                "--recompute-granularity: --train-backend fsdp computes every layer again or none; use "
                "--gradient-checkpointing"
            )
        if args.gradient_checkpointing:
            raise ConfigError(
                "--gradient-checkpointing computes every layer again; drop it or --recompute-granularity"
            )


def _check_granularity(args: Arguments) -> None:
    granularity = args.recompute_granularity
    full, selective = granularity == "full", granularity == "selective"
    for name in OF_FULL:
        if full and getattr(args, name) is None:
            raise ConfigError(
                f"--recompute-granularity full needs {option(name)} too; for every layer use "
                "--gradient-checkpointing"
            )
        if not full and getattr(args, name) is not None:
            raise ConfigError(f"{option(name)} needs --recompute-granularity full")
    if args.recompute_num_layers is not None and args.recompute_num_layers < 1:
        raise ConfigError(f"--recompute-num-layers must be 1 or more, got {args.recompute_num_layers}")
    if not selective:
        if args.recompute_modules is not None:
            raise ConfigError("--recompute-modules needs --recompute-granularity selective")
        return
    args.recompute_modules = args.recompute_modules or MODULES[0]
    for name in args.recompute_modules.split(","):
        if name not in MODULES:
            raise ConfigError(
                f"--recompute-modules {name}: these can be computed again: {', '.join(MODULES)}"
            )
