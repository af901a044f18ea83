"""Attention over packed sequences in megatron-core's layers, without Transformer Engine.

Under context parallelism every rank has a part of the tokens. Before attention, ranks exchange a part of the
tokens with all heads for all tokens with a part of the heads (DeepSpeed-Ulysses, Jacobs et al. 2023), so the
FSDP backend's kernels can be used unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from megatron.core.transformer.attention import SelfAttention
from torch import Tensor, nn

from slime.training.attention.kernels import KERNELS
from slime.training.core.packing import Layout
from slime.training.megatron.row_shards import all_gather

if TYPE_CHECKING:
    from megatron.core.transformer.transformer_config import TransformerConfig
    from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Places:
    """The positions of a pack's tokens; megatron-core passes them to every layer as its attention mask.

    Attributes:
        layout: layout of the whole pack of N tokens, of which this rank has n.
        cos, sin: of the rotary angles of these n tokens, [n, 1, 1, rotated], in the compute dtype.
    """

    layout: Layout
    cos: Tensor
    sin: Tensor

    def rotate(self, x: Tensor) -> Tensor:
        """Applies the rotary embedding (Su et al. 2021) to [n, 1, heads, D]; other dimensions are unchanged."""
        width = self.cos.shape[-1]
        turned, rest = x[..., :width], x[..., width:]
        first, second = turned.chunk(2, -1)
        rotated = turned * self.cos + torch.cat([-second, first], -1) * self.sin
        return torch.cat([rotated, rest], -1) if rest.shape[-1] else rotated


class PackedAttention(nn.Module):
    """The core attention of one layer. Other arguments come from megatron-core and are ignored.

    Args:
        kernel: a name in KERNELS.
    """

    def __init__(self, config: TransformerConfig, kernel: str, pg_collection: Any, **_: object) -> None:
        super().__init__()
        self.kernel, self.cp = KERNELS[kernel], pg_collection.cp

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask: Places, **_: object
    ) -> Tensor:
        """Maps query [n, 1, heads, D], key and value [n, 1, kv_heads, D] to [n, 1, heads x D]."""
        own_tensors = attention_mask.rotate(query), attention_mask.rotate(key), value
        whole = [by_heads(x.squeeze(1), self.cp).transpose(0, 1).unsqueeze(0) for x in own_tensors]
        output, _none = self.kernel(self, *whole, None, packed_layout=attention_mask.layout)
        return by_tokens(output.squeeze(0), self.cp).flatten(1).unsqueeze(1)


class GatedSelfAttention(SelfAttention):  # type: ignore[misc]
    """Attention whose output is multiplied by a gate for every head (Qwen3.5).

    In a Hugging Face folder each query is followed by its gate; megatron-core has a group's gates after its queries.
    The rest is megatron-core's.
    """

    def get_query_key_value_tensors(
        self, hidden_states: Tensor, *_: object, **__: object
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Maps hidden states [n, 1, H] to query [n, 1, heads, D], key and value [n, 1, kv_heads, D], and a gate
        shaped like query."""
        mixed, _none = self.linear_qkv(hidden_states)
        width, groups = self.hidden_size_per_attention_head, self.num_query_groups_per_partition
        slots = mixed.view(*mixed.shape[:2], groups, -1, width)
        queries, key, value = torch.split(slots, [slots.shape[3] - 2, 1, 1], dim=3)
        query, gate = queries.reshape(*mixed.shape[:2], -1, 2, width).unbind(3)
        return self.q_layernorm(query), self.k_layernorm(key.squeeze(3)), value.squeeze(3), gate

    def _apply_output_gate(self, x: Tensor, gate: Tensor) -> Tensor:
        return x * torch.sigmoid(gate.reshape(x.shape))


class _Exchange(torch.autograd.Function):
    """All-to-all that sends block i of the first dimension to rank i; the gradient takes the opposite
    direction."""

    @staticmethod
    def forward(ctx: Any, blocks: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        received = torch.empty_like(blocks)
        dist.all_to_all_single(received, blocks, group=group)
        return received

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        blocks = grads[0].contiguous()
        received = torch.empty_like(blocks)
        dist.all_to_all_single(received, blocks, group=ctx.group)
        return received, None


def by_heads(x: Tensor, group: ProcessGroup) -> Tensor:
    """Exchanges [n, heads, D] of this rank's tokens for [N, heads / ranks, D] of all tokens."""
    if group.size() == 1:
        return x
    blocks = torch.stack(x.chunk(group.size(), dim=1))
    return _Exchange.apply(blocks, group).flatten(0, 1)  # type: ignore[no-untyped-call,no-any-return]


def by_tokens(x: Tensor, group: ProcessGroup) -> Tensor:
    """Exchanges [N, heads / ranks, D] of all tokens for [n, heads, D] of this rank's tokens."""
    if group.size() == 1:
        return x
    blocks = torch.stack(x.chunk(group.size(), dim=0))
    exchanged: Tensor = _Exchange.apply(blocks, group)  # type: ignore[no-untyped-call]
    return exchanged.transpose(0, 1).flatten(1, 2)


class _Gather(torch.autograd.Function):
    """Gathers the tokens of all ranks on each rank.

    Later layers compute the same on every rank, so the summed gradient of this rank's tokens is its own
    gradient times the number of ranks.
    """

    @staticmethod
    def forward(ctx: Any, own_tokens: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        whole = own_tokens.new_empty(group.size() * len(own_tokens), *own_tokens.shape[1:])
        all_gather(whole, own_tokens.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ranks = ctx.group.size()
        return grads[0].chunk(ranks)[ctx.group.rank()] * ranks, None


def gather_tokens(own_tokens: Tensor, group: ProcessGroup) -> Tensor:
    """Gathers [n, ...] of each rank of the context-parallel group to [N, ...]."""
    if group.size() == 1:
        return own_tokens
    return _Gather.apply(own_tokens, group)  # type: ignore[no-untyped-call,no-any-return]
