"""Which function computes the attention over packed sequences: the values of --attn-implementation.

All of them read the same layout and compute the same; the loop over sequences is the reference.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from transformers import AttentionInterface

from slime.errors import ConfigError, unknown_name
from slime.training.attention.flex import flex_packed_attention
from slime.training.attention.packed import NAME as SDPA
from slime.training.attention.packed import packed_attention
from slime.training.attention.varlen import best_attention, flash_attention, varlen_attention

if TYPE_CHECKING:
    from slime.flags.model import ModelArguments

KERNELS: dict[str, Any] = {
    "auto": best_attention,
    "varlen": varlen_attention,
    "sdpa": packed_attention,
    "flex_attention": flex_packed_attention,
    "flash_attention_2": flash_attention,
}
NAMES = {kernel: f"slime_{kernel}" for kernel in KERNELS} | {"sdpa": SDPA}
"""Under which transformers knows them."""


def attention_name(args: ModelArguments) -> str:
    """The registered name behind --attn-implementation.

    Raises:
        ConfigError: no kernel has that name, or it is not installed.
    """
    if args.attn_implementation not in KERNELS:
        raise unknown_name("--attn-implementation", args.attn_implementation, KERNELS)
    if args.attn_implementation == "flash_attention_2" and importlib.util.find_spec("flash_attn") is None:
        raise ConfigError(
            "--attn-implementation flash_attention_2 needs the flash-attn package, which has no wheels for this torch; "
            "varlen is the same kernel, and torch brings it"
        )
    return NAMES[args.attn_implementation]


for _kernel, _name in NAMES.items():
    AttentionInterface.register(_name, KERNELS[_kernel])
