"""The critic of PPO: a model of its own that says, before every trained token, what reward is still to come.

It lives in the same process as the policy, is cut into micro-batches by the same schedule and is sharded over the
same ranks, so that policy and critic see the same samples without any transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from slime.losses import LossOutput, value_loss
from slime.training.core.batch import RolloutData
from slime.training.core.checkpoint import Part
from slime.training.core.distributed import sum_over_ranks
from slime.training.core.optimizer import build_optimizer, learning_rate, set_learning_rate
from slime.training.core.packing import PackedBatch, pack
from slime.training.core.step import by_sample, clip_and_check, step_reducer, values_of
from slime.training.fsdp.loading import load_as
from slime.training.fsdp.lora import add_adapters
from slime.training.schedule import MicroBatch, Schedule, Step
from slime.types import Sample

PREFIX = "critic_"


class ValueModel(nn.Module):
    """The body of a causal language model with one linear output instead of a vocabulary.

    With adapters, body and adapters are those of LoRA, and the output is trained as a whole.
    """

    def __init__(self, model: Any, seed: int) -> None:
        super().__init__()
        self.body = model.get_decoder()
        self.config = model.config
        self._no_split_modules = model._no_split_modules
        width = model.config.get_text_config().hidden_size
        self.head = nn.Linear(width, 1, bias=False, dtype=torch.float32)
        generator = torch.Generator().manual_seed(seed)  # every rank draws the same
        nn.init.normal_(self.head.weight, std=(width + 1) ** -0.5, generator=generator)

    def forward(self, positions: Tensor, **inputs: Any) -> Tensor:
        """Values [T] in fp32 at `positions` [T] of the pack."""
        hidden = self.body(use_cache=False, **inputs).last_hidden_state[0, positions]
        values: Tensor = (
            self.head(hidden.to(self.head.weight.dtype)).squeeze(-1).float().clone()
        )  # FSDP wants no view
        return values


class Critic:
    """Model, optimizer and steps so far. All ranks make the same calls."""

    def __init__(self, args: Any, mesh: DeviceMesh, rank: int, device: torch.device) -> None:
        self.args, self.rank, self.device = args, rank, device
        folder = args.critic_load or args.hf_checkpoint
        self.model = load_as(partial(_value_model, args=args), folder, mesh, args)
        self.rate: float = args.lr if args.critic_lr is None else args.critic_lr
        self.optimizer = build_optimizer(self.model, args)
        self.steps = 0

    @property
    def part(self) -> Part:
        """What a checkpoint holds of it."""
        return Part(self.model, self.optimizer, PREFIX, self.steps)

    @torch.no_grad()
    def values(self, schedule: Schedule, samples: Sequence[Sample]) -> dict[int, list[float]]:
        """Value before every trained token of this rank's samples, by position."""
        found: dict[int, list[float]] = {}
        self.model.eval()
        for step in schedule.steps:
            for micro_batch in step.ranks[self.rank]:
                packed = pack([samples[i] for i in micro_batch], self.device)
                found |= by_sample(micro_batch, packed, self._values(packed))
        self.model.train()
        return found

    def train(self, schedule: Schedule, data: RolloutData, where: str) -> dict[str, float]:
        """One optimizer step for each step of the schedule; mean of their metrics.

        Raises:
            TrainError: loss or gradient is not finite; that step and later ones were not applied.
        """
        found = [
            self._step(step, data, f"{where}, step {number} of the critic")
            for number, step in enumerate(schedule.steps)
        ]
        return {name: sum(step[name] for step in found) / len(found) for name in found[0]} if found else {}

    def _step(self, step: Step, data: RolloutData, where: str) -> dict[str, float]:
        world_size = len(step.ranks)
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        try:
            for micro_batch in step.ranks[self.rank]:
                packed = pack([data.samples[i] for i in micro_batch], self.device)
                output = self.loss(self._values(packed), micro_batch, packed, step, data)
                torch.autograd.backward(output.loss * world_size)
                for name, value in output.metrics.items():
                    sums[name] = sums.get(name, 0.0) + float(value)
            metrics = sum_over_ranks(sums)
            norm = clip_and_check(self.model, metrics["value_loss"], self.args.clip_grad, where)
            rate = learning_rate(self.args, self.steps, self.rate)
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return metrics | {"critic_grad_norm": norm, "critic_lr": rate}

    def loss(
        self, values: Tensor, micro_batch: MicroBatch, packed: PackedBatch, step: Step, data: RolloutData
    ) -> LossOutput:
        """Of one micro-batch with its values [T]."""
        by_token = self.args.calculate_per_token_loss
        reducer = step_reducer(step.denominator(by_token), packed, by_token)
        old, returns = (values_of(micro_batch, packed, known) for known in (data.values, data.returns))
        assert old is not None and returns is not None
        return value_loss(values, old, returns, reducer, self.args.value_clip)

    def _values(self, packed: PackedBatch) -> Tensor:
        values: Tensor = self.model(
            positions=packed.logit_positions,
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            packed_layout=packed.layout,
        )
        return values


def _value_model(model: Any, args: Any) -> ValueModel:
    if args.use_lora:
        add_adapters(model, args)  # in place
    return ValueModel(model, args.seed)
