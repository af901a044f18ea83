"""Flags: training of adapters instead of the whole model."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import excludes, flag, needs, option
from slime.flags.shared import FINE_TUNING, GENERATING, not_by_megatron, on_gpus

DEFAULT_RANK, DEFAULT_ALPHA = 8, 16.0
NOT_BY_ADAPTER = {
    "load_in_4bit": "engines serve the stored base, but adapters would be trained on another one",
    "lora_modules_to_save": "engines add only low-rank factors to the base",
    "load": "new adapters have no effect, or start from --adapter-parent",
    "colocate": "engines and trainer would alternate for each adapter",
    "async_save": "an adapter must be complete on disk before the next one is trained",
    "ref_update_interval": "the reference is the frozen base",
}
"""Flags that cannot be combined with --train-adapters, with reasons."""


@dataclass
class LoraArguments:
    """LoRA. Any of these flags except --ship-adapters enables it."""

    use_lora: bool = flag(False, "train low-rank adapters on a frozen model", main=True)
    ship_adapters: bool | None = flag(
        None,
        "send engines the adapter, not merged weights, between checkpoints (default: embedded without"
        " --load-in-4bit)",
        rules=[needs("use_lora", text="{flag} needs --use-lora")],
    )
    train_adapters: str | None = flag(
        None,
        "train adapters on a frozen base, each from its own conversations: per-key (one per "
        "named client key), or comma-separated names",
        env=("TRAIN_ADAPTERS",),
        rules=[
            needs(
                train_backend="fsdp",
                text="{flag} needs --train-backend fsdp: other backends hold only one adapter",
            ),
            needs(rollout_backend="embedded", text="{flag} needs --rollout-backend embedded"),
            excludes(
                rollout_function_path=(*GENERATING, FINE_TUNING),
                text="{flag} needs a --rollout-function-path that sets the adapter of a batch",
            ),
            *(
                excludes(name, text=f"{{flag}} cannot be combined with {option(name)}: {reason}")
                for name, reason in NOT_BY_ADAPTER.items()
            ),
            excludes(
                advantage_estimator="ppo",
                text="{flag} cannot be combined with --advantage-estimator ppo: there is one critic for all",
            ),
        ],
    )
    adapter_parent: str | None = flag(
        None,
        "initialize new adapters from this adapter's checkpoint (default: adapters without effect)",
        unit="path",
        rules=[needs("train_adapters", text="{flag} needs --train-adapters")],
    )
    load_in_4bit: bool = flag(
        False,
        "QLoRA: keep the frozen base in 4 bits (NF4, bitsandbytes); needs a GPU",
        aliases=("--qlora",),
        rules=[
            on_gpus("uses bitsandbytes' GPU kernels"),
            excludes(
                "ref_update_interval",
                text="--ref-update-interval cannot write into a 4-bit model; drop {flag}",
            ),
            not_by_megatron("it does not support 4-bit matrices"),
        ],
        main=True,
    )
    lora_rank: int | None = flag(None, f"rank of the adapters (default: {DEFAULT_RANK})", least=1, main=True)
    lora_alpha: float | None = flag(
        None,
        f"scale of adapters: this value divided by their rank (default: {DEFAULT_ALPHA:g})",
        above=0,
        main=True,
    )
    lora_dropout: float | None = flag(
        None, "dropout of the adapters' inputs in training (default: 0)", least=0, below=1
    )
    lora_target_modules: str | None = flag(
        None,
        "comma-separated linear modules with adapters (default: all except the output head)",
    )
    lora_modules_to_save: str | None = flag(
        None,
        "comma-separated modules to train fully in addition to the adapters (default: none)",
        rules=[not_by_megatron("only adapters are trained with it")],
    )
