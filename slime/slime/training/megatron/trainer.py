"""megatron-core backend: tensor, pipeline, context and data parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from slime.training.core.learner import Learner, LossOf, build_optimizer
from slime.training.core.packing import PackedBatch
from slime.training.export import Weights
from slime.training.megatron.checkpoint import MegatronPart
from slime.training.megatron.gradients import Gradients
from slime.training.megatron.loading import ShardedValues, load_critic, load_model
from slime.training.megatron.lora import adapter_writer
from slime.training.megatron.parallel import Parallel, add_up_metrics, divide, sum_over
from slime.training.megatron.pipeline import ShardedModel
from slime.training.megatron.weights import whole_weights
from slime.training.trainer import Trainer

if TYPE_CHECKING:
    from slime.flags.sides import TrainingSide

Model = TypeVar("Model", bound=ShardedModel, covariant=True)


class MegatronLearner(Learner[Model]):
    """Gradients and optimizer of one rank's shard. Losses are computed on the last pipeline stage."""

    def __init__(self, model: Model, args: TrainingSide) -> None:
        self.model, self.gradients = model, Gradients(model, args)
        self.optimizer = build_optimizer(self.gradients.masters.parameters, args)

    def clear(self) -> None:
        self.gradients.clear()

    def accumulate(self, packs: Sequence[PackedBatch], loss_of: LossOf) -> None:
        self.model.train_step(packs, loss_of)
        self.gradients.collect()

    def add_up(self, sums: dict[str, float]) -> dict[str, float]:
        return add_up_metrics(sums, self.model.parallel)

    def clip(self, loss: float, max_norm: float, where: str) -> float:
        return self.gradients.clip(loss, max_norm, where)

    def move(self) -> None:
        self.gradients.masters.move(self.optimizer)

    def part(self, prefix: str = "", steps: int = 0) -> MegatronPart:
        return MegatronPart(self.model, self.optimizer, prefix, steps, gradients=self.gradients)


class MegatronTrainer(Trainer):
    """One of `world_size` ranks that train a Hugging Face model with megatron-core."""

    backend = "megatron"
    parallel: Parallel
    learner: MegatronLearner[ShardedModel]

    @property
    def asks_teacher_before(self) -> bool:
        """Returns whether the teacher must run before the step.

        Between a forward pass and its backward pass, pipeline stages process other micro-batches.
        """
        return self.spec.teacher == "topk" and self.parallel.pp.size > 1

    def divide(self) -> tuple[int, int]:
        self.parallel = divide(self.args)
        return self.parallel.dp.rank, self.parallel.dp.size

    def load_policy(self, folder: str) -> MegatronLearner[ShardedModel]:
        on_logits = self.spec.on_logits is not None
        model = load_model(folder, self.args, self.parallel, self.device, trained=True, on_logits=on_logits)
        return MegatronLearner(model, self.args)

    def load_critic(self) -> MegatronLearner[ShardedValues]:
        return MegatronLearner(load_critic(self.args, self.parallel, self.device), self.args)

    def load_frozen(self, folder: str) -> ShardedModel:
        return load_model(folder, self.args, self.parallel, self.device)

    def weights_part(self, model: Any, prefix: str) -> MegatronPart:
        return MegatronPart(model, None, prefix, gradients=Gradients(model))

    def whole_weights(self, dtype: torch.dtype | None) -> Weights:
        weights = self.learner.model.weights
        stage = sum(len(entry.sources) for entry in weights.entries.values())
        return Weights(whole_weights(weights, dtype, self.parallel), stage * self.parallel.pp.size)

    def gather_adapter(self, base: str) -> Callable[[Path], dict[str, Tensor]]:
        return adapter_writer(self.learner.model.weights, self.parallel, self.args, base)

    def add_up(self, values: Tensor) -> Tensor:
        return sum_over(values, self.parallel.dp)
