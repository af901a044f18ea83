"""The critic's model in parts: the body of a model with one linear output, spread over the same ranks as the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from slime.training.core.packing import PackedBatch
from slime.training.megatron.loading import load_core
from slime.training.megatron.lora import add_adapters
from slime.training.megatron.model import PackedGPT
from slime.training.megatron.parallel import Parallel
from slime.training.megatron.pipeline import ShardedModel, wide
from slime.training.megatron.weight_map import Entry

if TYPE_CHECKING:
    from slime.flags import Arguments

HEAD = "value_head.weight"


class PackedValues(PackedGPT):
    """One stage; the last one can make a value of each row in place of logits."""

    has_head = False

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        if self.post_process:
            self.output_layer = None

    def add_head(self, seed: int) -> None:
        """The linear output, drawn as under FSDP. Every rank draws the same."""
        width, like = self.config.hidden_size, next(self.parameters())
        drawn = torch.empty(1, width)
        nn.init.normal_(drawn, std=(width + 1) ** -0.5, generator=torch.Generator().manual_seed(seed))
        self.value_head = nn.Linear(width, 1, bias=False, device=like.device, dtype=like.dtype)
        self.value_head.weight.data.copy_(drawn)


class ShardedValues(ShardedModel):
    """A model in parts whose losses see values [T]."""

    def _of(self, output: Tensor, packed: PackedBatch) -> Any:
        return self._own(output, packed).float()

    def _say(self, output: Tensor, packed: PackedBatch) -> Tensor:
        return self._own(output, packed).to(wide(self.dtype))

    def _own(self, output: Tensor, packed: PackedBatch) -> Tensor:
        hidden, rows = self.core.own_rows(output, packed)
        return rows.share(self.core.value_head(hidden).flatten())

    def values(self, packed: PackedBatch) -> Tensor:
        """fp32 values [T] of the pack, on every rank, without gradients."""
        return self.of_all([packed])[0].float()


def load_critic(args: Arguments, parallel: Parallel, device: torch.device) -> ShardedValues:
    """The critic of the flags. Raises ConfigError as `load_core`."""
    folder = args.critic_load or args.hf_checkpoint
    core, weights = load_core(PackedValues, folder, args, parallel, device)
    if args.use_lora:
        add_adapters(core, weights, args)
    if core.post_process:
        core.add_head(args.seed)
        weights.entries[HEAD] = Entry((HEAD,), "value")
    return ShardedValues(core, weights)
