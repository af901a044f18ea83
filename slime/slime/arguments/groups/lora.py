"""Flags: training of adapters instead of the whole model."""

from __future__ import annotations

from dataclasses import dataclass

from slime.arguments.declare import flag

DEFAULT_RANK, DEFAULT_ALPHA = 8, 16.0


@dataclass
class LoraArguments:
    """LoRA. Any of these flags but --ship-adapters switches it on."""

    use_lora: bool = flag(False, "train low-rank adapters beside a frozen model")
    ship_adapters: bool | None = flag(
        None,
        "between checkpoints, engines get the adapter alone and merge it themselves; otherwise merged models "
        "(default: with the embedded engine, and not with --load-in-4bit)",
    )
    load_in_4bit: bool = flag(
        False, "QLoRA: keep the frozen base in 4 bits (NF4, bitsandbytes); needs a GPU", aliases=("--qlora",)
    )
    lora_rank: int | None = flag(None, "rank of the adapters (default: 8)")
    lora_alpha: float | None = flag(None, "adapters are scaled by this over their rank (default: 16)")
    lora_dropout: float | None = flag(
        None, "share of adapter inputs that a training pass leaves out (default: 0)"
    )
    lora_target_modules: str | None = flag(
        None,
        "linear modules with adapters, their names separated by commas (default: all but the output head)",
    )
    lora_modules_to_save: str | None = flag(
        None,
        "modules to train as a whole beside the adapters, their names separated by commas (default: none)",
    )
