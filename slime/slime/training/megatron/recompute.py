"""What the backward pass computes again instead of keeping it, of the layers of one stage.

megatron-core's own checkpoints ask CUDA for its random state. These work on CPUs too, and nothing is drawn at random
in a layer but the dropout of adapters, whose state torch keeps.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from megatron.core.transformer.transformer_block import TransformerBlock

    from slime.flags.sides import TrainingSide

MODULES = {"core_attn": "self_attention.core_attention", "mlp": "mlp"}


def recompute(block: TransformerBlock, args: TrainingSide) -> None:
    """Applies the flags to a transformer block of megatron-core."""
    granularity = args.recompute_granularity
    if args.gradient_checkpointing or (granularity, args.recompute_method) == ("full", "uniform"):
        block.config = copy.copy(block.config)
        block.config.recompute_granularity = "full"  # the block then asks for what is put in place here
        block._checkpointed_forward = partial(_in_groups, block.layers, args.recompute_num_layers or 1)
    elif granularity == "selective":
        assert args.recompute_modules is not None
        for layer in block.layers:
            for name in args.recompute_modules.split(","):
                _again(layer.get_submodule(MODULES[name]))
    elif granularity == "full":
        for layer in block.layers[: args.recompute_num_layers]:
            _again(layer)


def _again(module: Any) -> None:
    module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def _in_groups(layers: nn.ModuleList, size: int, hidden_states: Tensor, **inputs: Any) -> Tensor:
    """The layers one after the other; only the input of every `size` of them is kept."""
    mask = inputs["attention_mask"]

    def run(hidden: Tensor, first: int) -> Tensor:
        for layer in layers[first : first + size]:
            hidden, _context = layer(hidden_states=hidden, attention_mask=mask)
        return hidden

    for first in range(0, len(layers), size):
        hidden_states = checkpoint(run, hidden_states, first, use_reentrant=False)
    return hidden_states
