"""The linear attention of Qwen3.5 (gated delta net, Yang et al. 2024) on megatron-core's linear layers, over
packs.

megatron-core's own layer needs a GPU and does not support packed sequences. This one uses the functions of
the FSDP backend, so its results equal transformers'. Each tensor-parallel rank has a part of the heads. So
does each context-parallel rank during the recurrence: tokens and heads are exchanged as in attention.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn

from slime.training.attention.linear import decay, packed_delta_rule
from slime.training.core.packing import Layout
from slime.training.megatron.attention import Places, by_heads, by_tokens
from slime.training.megatron.fused_rows import Sections, cut
from slime.training.megatron.norms import GatedRMSNorm


def projected(config: TransformerConfig) -> Sections:
    """Returns the rows of a layer's input projection by Hugging Face module: queries, keys and values; gate;
    b; a."""
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    heads = config.linear_num_value_heads
    return (keys, keys, values), (values,), (heads,), (heads,)


class GatedDeltaNet(nn.Module):
    """The linear attention of one layer. Other arguments come from megatron-core and are ignored."""

    def __init__(self, config: TransformerConfig, pg_collection: Any, **_: object) -> None:
        super().__init__()
        groups = projected(config)
        self.sizes = [sum(group) // pg_collection.tp.size() for group in groups]
        self.width = config.linear_value_head_dim
        how = {"config": config, "bias": False, "skip_bias_add": True, "is_expert": False}
        how["tp_group"] = pg_collection.tp
        self.in_proj = ColumnParallelLinear(
            config.hidden_size,
            sum(sum(group) for group in groups),
            init_method=config.init_method,
            gather_output=False,
            **how,
        )
        self.core_attention = DeltaRule(config, pg_collection)
        self.norm = GatedRMSNorm(config, self.width, config.layernorm_epsilon)
        self.out_proj = RowParallelLinear(
            sum(groups[1]),
            config.hidden_size,
            init_method=config.output_layer_init_method,
            input_is_parallel=True,
            **how,
        )

    def forward(
        self, hidden_states: Tensor, attention_mask: Places, **_: object
    ) -> tuple[Tensor, Tensor | None]:
        """Maps hidden states [n, 1, H] to the same shape, without bias."""
        projected_, _none = self.in_proj(hidden_states)
        qkv, gate, b, a = torch.split(projected_, self.sizes, dim=-1)
        mixed = self.core_attention(qkv, b, a, attention_mask.layout)
        gated = self.norm(mixed, gate.view(mixed.shape))
        output: tuple[Tensor, Tensor | None] = self.out_proj(gated.flatten(-2))
        return output


class DeltaRule(nn.Module):
    """The convolution and the recurrence of one layer.

    Attributes:
        kernel: [C, 1, K] as in a Hugging Face folder, of the C channels of this tensor-parallel rank.
        A_log, dt_bias: [heads], parameters of `decay`.
    """

    def __init__(self, config: TransformerConfig, pg_collection: Any) -> None:
        super().__init__()
        self.cp, tp = pg_collection.cp, pg_collection.tp.size()
        self.widths = config.linear_key_head_dim, config.linear_value_head_dim
        self.channels = [size // tp for size in projected(config)[0]]
        heads = config.linear_num_value_heads // tp
        shape = sum(self.channels), 1, config.linear_conv_kernel_dim
        self.kernel, self.A_log, self.dt_bias = (
            nn.Parameter(torch.empty(size, dtype=config.params_dtype)) for size in (shape, heads, heads)
        )

    def forward(self, qkv: Tensor, b: Tensor, a: Tensor, layout: Layout) -> Tensor:
        """Maps qkv [n, 1, C], b and a [n, 1, heads] of this rank's n tokens to [n, 1, heads, D]."""
        key, value = self.widths
        parts = torch.split(qkv.squeeze(1), self.channels, dim=-1)
        q, k, v = (
            by_heads(x.reshape(len(x), -1, width), self.cp).flatten(1)
            for x, width in zip(parts, (key, key, value), strict=True)
        )
        b, a = (by_heads(x.transpose(1, 2), self.cp).squeeze(2) for x in (b, a))
        size, rank = self.cp.size(), self.cp.rank()
        kernel = cut(self.kernel, self.channels, size, rank).squeeze(1)
        log, bias = (x.chunk(size)[rank] for x in (self.A_log, self.dt_bias))
        whole = torch.cat([q, k, v], dim=-1).unsqueeze(0)
        beta, left = b.sigmoid().unsqueeze(0), decay(a, log, bias).unsqueeze(0)
        output = packed_delta_rule(whole, beta, left, kernel, self.widths, layout)
        return by_tokens(output.squeeze(0), self.cp).unsqueeze(1)
