"""The feed-forward network of a layer without experts."""

from __future__ import annotations

from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor
from torch.nn.functional import silu


class GatedMLP(MLP):  # type: ignore[misc]
    """Gated feed-forward network.

    Without a compiled activation, megatron-core's own network would add a zero bias to every number and keep
    the sums for the backward pass.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(
            config,
            MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear),
            ffn_hidden_size=config.ffn_hidden_size,
            tp_group=mpu.get_tensor_model_parallel_group(),
        )

    def forward(self, hidden_states: Tensor, **how: object) -> tuple[Tensor, Tensor | None]:
        """Maps hidden states [n, 1, H] to the same shape, without bias."""
        if self.config.bias_activation_fusion:
            fused: tuple[Tensor, Tensor | None] = super().forward(hidden_states, **how)
            return fused
        gate, up = self.linear_fc1(hidden_states)[0].chunk(2, -1)
        output: tuple[Tensor, Tensor | None] = self.linear_fc2(silu(gate) * up)
        return output
