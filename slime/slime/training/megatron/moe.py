"""Mixture of experts on megatron-core's groups: router, experts divided over ranks, and exchange of tokens.

megatron-core's own layer cannot run on a CPU: its router moves its weight to CUDA, and its dispatchers use
CUDA streams or "the current CUDA device". This layer uses the same configuration and expert-parallel group,
and its results equal transformers'. No token is dropped: an expert processes all tokens that select it.

Tensor parallelism does not shard the experts. Instead, ranks with the same tokens divide the tokens.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn
from torch.nn.functional import grouped_mm, linear, silu

from slime.training.megatron.mlp import GatedMLP

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

ALIGNMENT = 16  # bytes


class Router(nn.Module):
    """Selects each token's experts and the weights of their outputs (Shazeer et al. 2017).

    As in transformers, the product is in the weights' dtype and the softmax in fp32. With
    `moe_router_pre_softmax`, the weights are the probabilities; otherwise, those of the selected experts are
    scaled to a sum of 1.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.top_k, self.scaled = config.moe_router_topk, not config.moe_router_pre_softmax
        shape = config.num_moe_experts, config.hidden_size
        self.weight = nn.Parameter(torch.empty(shape, dtype=config.params_dtype))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Maps tokens [n, H] to weights and ids of their experts, [n, K]."""
        logits = linear(rows, self.weight)
        weights, chosen = torch.softmax(logits, -1, dtype=torch.float32).topk(self.top_k, -1)
        if self.scaled:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(rows.dtype), chosen


class Experts(nn.Module):
    """The experts of one rank: gated feed-forward networks of equal shape.

    Attributes:
        gate_up: [experts, 2 I, H], first the rows of the gate, then those of the up projection.
        down: [experts, H, I].
    """

    def __init__(self, config: TransformerConfig, count: int) -> None:
        super().__init__()
        hidden, width = config.hidden_size, config.moe_ffn_hidden_size
        self.gate_up = nn.Parameter(torch.empty(count, 2 * width, hidden, dtype=config.params_dtype))
        self.down = nn.Parameter(torch.empty(count, hidden, width, dtype=config.params_dtype))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Maps tokens [n, H], sorted by expert, to [n, H]; `counts` [experts] is the number of tokens per
        expert."""
        gate, up = _products(rows, self.gate_up, counts).chunk(2, -1)
        return _products(silu(gate) * up, self.down, counts)


def _products(rows: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """Multiplies rows [n, in], sorted by expert, by the experts' matrices [experts, out, in] -> [n, out].

    Uses a single grouped kernel if possible: not for float64, nor for rows that are not aligned to 16 bytes.
    """
    aligned = all(size * rows.element_size() % ALIGNMENT == 0 for size in weights.shape[1:])
    if aligned and rows.dtype != torch.float64:
        return grouped_mm(rows, weights.transpose(1, 2), offs=counts.cumsum(0).to(torch.int32))
    parts = zip(torch.split(rows, counts.tolist()), weights, strict=True)
    return torch.cat([linear(part, weight) for part, weight in parts])


class SharedExpert(nn.Module):
    """An expert that processes every token and has a gate (Qwen2-MoE), sharded over tensor-parallel ranks."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        own = copy(config)
        own.ffn_hidden_size = config.moe_shared_expert_intermediate_size
        self.mlp = GatedMLP(own)
        self.gate = nn.Parameter(torch.empty(1, config.hidden_size, dtype=config.params_dtype))

    def forward(self, hidden: Tensor) -> Tensor:
        answer, _none = self.mlp(hidden)
        weighted: Tensor = torch.sigmoid(linear(hidden, self.gate)) * answer
        return weighted


class MixtureOfExperts(nn.Module):
    """The feed-forward network of a layer with experts; replaces megatron-core's MoELayer.

    All ranks of an expert-parallel group must run it at the same time.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.group = mpu.get_expert_model_parallel_group()
        whole = config.sequence_parallel or config.tensor_model_parallel_size == 1
        self.sharing = None if whole else mpu.get_tensor_model_parallel_group()
        self.router = Router(config)
        self.experts = Experts(config, config.num_moe_experts // self.group.size())
        self.shared = SharedExpert(config) if config.moe_shared_expert_intermediate_size else None

    def forward(self, hidden: Tensor, **_: object) -> tuple[Tensor, None]:
        """Maps hidden states [n, 1, H] to the same shape, without bias."""
        rows = hidden.flatten(0, 1)
        if self.sharing is not None:
            rows = _Share.apply(rows, self.sharing)  # type: ignore[no-untyped-call]
        output = self._mix(rows)
        if self.sharing is not None:
            output = _Unite.apply(output, self.sharing)  # type: ignore[no-untyped-call]
        output = output.view_as(hidden)
        return output if self.shared is None else output + self.shared(hidden), None

    def _mix(self, rows: Tensor) -> Tensor:
        weights, chosen = self.router(rows)
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.new_zeros(len(self.router.weight))
        counts.scatter_add_(0, chosen.flatten(), torch.ones_like(chosen.flatten()))
        answers = self._ask(rows[order // self.router.top_k], counts)[order.argsort()]
        of_tokens = answers.view(*chosen.shape, -1)
        mixed: Tensor = (of_tokens * weights.unsqueeze(-1)).sum(1)
        return mixed

    def _ask(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Sends rows [m, H], sorted by expert, to their experts; returns the outputs [m, H].

        Args:
            counts: number of rows for each of all experts.
        """
        ranks = self.group.size()
        if ranks == 1:
            return self.experts(rows, counts)  # type: ignore[no-any-return]
        counts_by_rank = counts.view(ranks, -1)
        got = torch.empty_like(counts_by_rank)
        dist.all_to_all_single(got, counts_by_rank, group=self.group)
        sent, received = torch.stack([counts_by_rank.sum(1), got.sum(1)]).tolist()
        expert = torch.arange(got.shape[1], device=got.device).repeat(ranks)
        order = expert.repeat_interleave(got.flatten(), output_size=sum(received)).argsort(stable=True)
        asked = _Travel.apply(rows, sent, received, self.group)[order]  # type: ignore[no-untyped-call]
        del rows  # otherwise all inputs would stay in memory with the outputs
        answers = self.experts(asked, got.sum(0))[order.argsort()]
        return _Travel.apply(answers, received, sent, self.group)  # type: ignore[no-untyped-call,no-any-return]


class _Travel(torch.autograd.Function):
    """All-to-all of rows: `sent[i]` rows go to rank i, `received[i]` come from it; gradients go back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _travel(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return _travel(grads[0], ctx.received, ctx.sent, ctx.group), None, None, None


def _travel(rows: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
    arrived = rows.new_empty(sum(received), rows.shape[1])
    dist.all_to_all_single(arrived, rows.contiguous(), received, sent, group=group)
    return arrived


class _Share(torch.autograd.Function):
    """Divides rows that several ranks have; in the backward pass, gathers the gradients of all parts."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        own_rows: Tensor = rows.chunk(group.size())[group.rank()]
        return own_rows.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _gathered(grads[0], ctx.group), None


class _Unite(torch.autograd.Function):
    """Gathers the parts of all ranks on each rank.

    Later layers compute the same on every rank, so each rank takes its part of the gradient.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return _gathered(rows, group)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0].chunk(ctx.group.size())[ctx.group.rank()].clone(), None


def _gathered(rows: Tensor, group: ProcessGroup) -> Tensor:
    parts = [torch.empty_like(rows) for _ in range(group.size())]
    dist.all_gather(parts, rows.contiguous(), group=group)
    return torch.cat(parts)
