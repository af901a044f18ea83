"""This process's position among the ranks that share a model, and among the replicas of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel.random import initialize_rng_tracker
from torch import Tensor

from slime.training.core.objects import broadcast_json

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from slime.flags.parallel import ParallelArguments


@dataclass(frozen=True)
class Axis:
    """One dimension of parallelism: the ranks of this process's group, and its position among them."""

    size: int
    rank: int
    group: Any
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Parallel:
    """All axes of parallelism.

    Attributes:
        tp: tensor parallelism; each rank has a part of every matrix.
        pp: pipeline stages.
        cp: context parallelism; each rank computes a part of every sequence.
        dp: data parallelism; each rank trains on other samples.
        copies: dp and cp together; the ranks whose gradients are summed.
        model: tp and pp together; the ranks that share one copy of the weights.
        ends: group of the first and last stages, which both have a tied embedding.
        ep: expert parallelism; each rank of a stage has other experts of every layer.
        copies_of_experts: the ranks that have the same experts.
    """

    tp: Axis
    pp: Axis
    cp: Axis
    dp: Axis
    copies: Axis
    model: Axis
    ends: Any
    ep: Axis
    copies_of_experts: Axis

    @property
    def is_first(self) -> bool:
        return self.pp.rank == 0

    @property
    def is_last(self) -> bool:
        return self.pp.rank == self.pp.size - 1

    @property
    def writes(self) -> bool:
        """Returns whether this rank exports the weights of its pipeline stage."""
        return self.tp.rank == self.copies.rank == 0


def divide(args: ParallelArguments) -> Parallel:
    """Creates the process groups, except the existing global one. Groups of an earlier model remain valid."""
    mpu.destroy_model_parallel()
    # A step draws no random numbers: dropout is off, and weights are loaded.
    initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
    mpu.initialize_model_parallel(
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        context_parallel_size=args.context_parallel_size,
        expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=1,
    )
    return Parallel(
        tp=_axis(mpu.get_tensor_model_parallel_group()),
        pp=_axis(mpu.get_pipeline_model_parallel_group()),
        cp=_axis(mpu.get_context_parallel_group()),
        dp=_axis(mpu.get_data_parallel_group()),
        copies=_axis(mpu.get_data_parallel_group(with_context_parallel=True)),
        model=_axis(mpu.get_model_parallel_group()),
        ends=mpu.get_embedding_group(check_initialized=False),
        ep=_axis(mpu.get_expert_model_parallel_group()),
        copies_of_experts=_axis(mpu.get_expert_data_parallel_group()),
    )


def _axis(group: ProcessGroup) -> Axis:
    return Axis(group.size(), group.rank(), group, tuple(dist.get_process_group_ranks(group)))


def sum_over(values: Tensor, axis: Axis) -> Tensor:
    """Returns the sum of a tensor over an axis."""
    total = values.clone()
    if axis.size > 1:
        dist.all_reduce(total, group=axis.group)
    return total


def from_last_stage(value: object, parallel: Parallel) -> Any:
    """Sends JSON data from the last pipeline stage to every stage and returns it."""
    if parallel.pp.size == 1:
        return value
    return broadcast_json(value, parallel.pp.ranks[-1], parallel.pp.group)


def add_up_metrics(sums: dict[str, float], parallel: Parallel) -> dict[str, float]:
    """Sums metrics over the replicas; the last pipeline stage sends its values to the others."""
    names = sorted(sums)
    total = sum_over(torch.tensor([sums[name] for name in names], dtype=torch.float64), parallel.dp)
    metrics: dict[str, float] = from_last_stage(dict(zip(names, total.tolist(), strict=True)), parallel)
    return metrics
