"""The critic of PPO in parts: the body of a model with one linear output, spread over the same ranks as the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from slime.training.core.batch import RolloutData
from slime.training.core.optimizer import build_optimizer, learning_rate, set_learning_rate
from slime.training.core.packing import PackedBatch, pack
from slime.training.core.step import by_sample
from slime.training.fsdp import critic as fsdp
from slime.training.megatron.checkpoint import MegatronPart
from slime.training.megatron.gradients import Gradients
from slime.training.megatron.loading import load_core
from slime.training.megatron.lora import add_adapters
from slime.training.megatron.model import PackedGPT
from slime.training.megatron.parallel import Parallel, add_up_metrics
from slime.training.megatron.pipeline import ShardedModel
from slime.training.megatron.weight_map import Entry
from slime.training.schedule import Schedule, Step
from slime.types import Sample

HEAD = "value_head.weight"


class PackedValues(PackedGPT):
    """One stage; the last one gives a value for each row in place of logits."""

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

    def output(self, hidden: Tensor, positions: Tensor) -> Tensor:
        values: Tensor = self.value_head(self.rows(hidden, positions)).flatten()
        return values


class ShardedValues(ShardedModel):
    """A model in parts whose losses see values [T]."""

    def _of(self, values: Tensor, packed: PackedBatch) -> Any:
        return values

    @torch.no_grad()
    def values(self, packed: PackedBatch) -> Tensor:
        """Values [T] of the pack, on every rank, without gradients."""
        axis = self.parallel.pp
        output = self.core.stage(packed, self._receive(packed, axis.rank - 1))
        if axis.size == 1:
            return output
        self._exchange(axis.rank + 1, output, None)
        if not self.parallel.is_last:
            output = output.new_empty(len(packed.targets))
        dist.broadcast(output, src=axis.ranks[-1], group=axis.group)
        return output


class Critic(fsdp.Critic):
    """Model, optimizer and steps so far. All ranks make the same calls."""

    def __init__(self, args: Any, parallel: Parallel, device: torch.device) -> None:
        self.args, self.parallel, self.device = args, parallel, device
        folder = args.critic_load or args.hf_checkpoint
        core, weights = load_core(PackedValues, folder, args, parallel, device)
        if args.use_lora:
            add_adapters(core, weights, args)
        if core.post_process:
            core.add_head(args.seed)
            weights.entries[HEAD] = Entry((HEAD,), "value")
        self.model = ShardedValues(core)
        self.gradients = Gradients(self.model, weights, args)
        self.rate = args.lr if args.critic_lr is None else args.critic_lr
        self.optimizer = build_optimizer(self.gradients.masters.parameters, args)
        self.steps = 0

    @property
    def part(self) -> MegatronPart:
        return MegatronPart(self.model, self.optimizer, fsdp.PREFIX, self.steps, gradients=self.gradients)

    def values(self, schedule: Schedule, samples: Sequence[Sample]) -> dict[int, list[float]]:
        found: dict[int, list[float]] = {}
        self.model.eval()
        for step in schedule.steps:
            for micro_batch in step.ranks[self.parallel.dp.rank]:
                packed = pack([samples[i] for i in micro_batch], self.device)
                found |= by_sample(micro_batch, packed, self.model.values(packed).float())
        self.model.train()
        return found

    def _step(self, step: Step, data: RolloutData, where: str) -> dict[str, float]:
        mine, sums = step.ranks[self.parallel.dp.rank], dict[str, float]()

        def loss_of(part: int, packed: PackedBatch, values: Any) -> Tensor:
            output = self.loss(values.float(), mine[part], packed, step, data)
            for name, value in output.metrics.items():
                sums[name] = sums.get(name, 0.0) + float(value)
            return output.loss

        try:
            self.gradients.clear()
            self.model.train_step(
                [pack([data.samples[i] for i in part], self.device) for part in mine], loss_of
            )
            self.gradients.collect()
            metrics = add_up_metrics(sums, self.parallel)
            norm = self.gradients.clip(metrics["value_loss"], self.args.clip_grad, where)
            rate = learning_rate(self.args, self.steps, self.rate)
            set_learning_rate(self.optimizer, rate)
            self.gradients.masters.move(self.optimizer)
        finally:
            self.gradients.clear()
        self.steps += 1
        return metrics | {"critic_grad_norm": norm, "critic_lr": rate}
