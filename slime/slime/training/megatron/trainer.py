"""The training core of one rank with megatron-core: tensor, pipeline, context and data parallelism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slime.errors import ConfigError
from slime.losses import Distribution, compute_loss, loss_spec
from slime.training.core.batch import RolloutData
from slime.training.core.checkpoint import CheckpointWriter, Part
from slime.training.core.distributed import join
from slime.training.core.optimizer import build_optimizer
from slime.training.core.packing import PackedBatch, pack
from slime.training.core.step import OnLogProbs, loss_batch, step_reducer, token_weights
from slime.training.megatron.checkpoint import MegatronPart
from slime.training.megatron.critic import Critic
from slime.training.megatron.gradients import Gradients
from slime.training.megatron.loading import load_model
from slime.training.megatron.lora import adapter_writer, add_adapters
from slime.training.megatron.parallel import add_up_metrics, divide, sum_over
from slime.training.megatron.reference import Reference, make_teacher
from slime.training.megatron.weights import gather_weights
from slime.training.schedule import Step
from slime.training.trainer import Trainer
from slime.weights.checksum import weights_checksum


class MegatronTrainer(Trainer):
    """One of `world_size` ranks that train a Hugging Face model with megatron-core. All ranks make the same calls.

    Args:
        args: `slime.arguments.Arguments`.
        init_method, store: how several ranks find each other, as in `torch.distributed.init_process_group`.

    Raises:
        ConfigError: a model that this backend cannot build, ranks that do not divide it.
    """

    backend = "megatron"

    def __init__(
        self, args: Any, rank: int = 0, world_size: int = 1, init_method: str | None = None, store: Any = None
    ) -> None:
        self.args, self.rank, self.world_size = args, rank, world_size
        on_gpu = args.actor_num_gpus_per_node > 0
        torch.set_num_threads(args.train_threads)
        join(rank, world_size, on_gpu, init_method, store, one_node=args.actor_num_nodes == 1)
        self.parallel = divide(args)
        self.replica, self.replicas = self.parallel.dp.rank, self.parallel.dp.size
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self.seed()
        self.spec = loss_spec(args)
        if self.spec.on_logits is not None:
            raise ConfigError(
                "--custom-loss-function-path takes the logits of the whole vocabulary, and --train-backend megatron "
                "has them in parts; write it as compute_loss(policy_logits, ...) or take fsdp"
            )
        first = self.first_weights()
        self.model, self.weights = load_model(first, args, self.parallel, self.device)
        if args.use_lora:
            add_adapters(self.model.core, self.weights, args)
        self.vocabulary = int(self.weights.hf.vocab_size)
        self.gradients = Gradients(self.model, self.weights, args)
        self.optimizer = build_optimizer(self.gradients.masters.parameters, args)
        if self.spec.needs_advantages and args.advantage_estimator == "ppo":
            self.critic = Critic(args, self.parallel, self.device)
        if self.spec.needs_reference:
            self.reference = Reference(args, self.model, self.weights, first, self.device)
        if self.spec.teacher is not None:
            known = self.replica, self.model, self.vocabulary, self.reference, first, self.device
            self.teacher = make_teacher(args, *known)
        self.asks_teacher_before = self.spec.teacher == "topk" and self.parallel.pp.size > 1
        self.writer = CheckpointWriter(args.save, in_background=args.async_save)

    @property
    def parts(self) -> list[Part]:
        """All that changes, as checkpoints hold it."""
        own = MegatronPart(self.model, self.optimizer, gradients=self.gradients)
        critic = [self.critic.part] if self.critic else []
        return [own, *critic, *(self.reference.parts if self.reference else ())]

    def forward_backward(
        self, number: int, step: Step, data: RolloutData, on_log_probs: OnLogProbs, where: str
    ) -> dict[str, float]:
        sums: dict[str, float] = {}
        teach = self.teacher.teaching(number, step, data) if self.teacher else None
        per_token, mine = self.args.calculate_per_token_loss, step.ranks[self.replica]
        denominator = step.denominator(per_token)

        def loss_of(part: int, packed: PackedBatch, dist: Distribution) -> Tensor:
            micro_batch = mine[part]
            batch = loss_batch(micro_batch, packed, data, denominator, self.args.reward_key)
            if teach is not None:
                dist.logsumexp()
                batch = replace(batch, targets=teach(part, packed, dist))
            weights = token_weights(micro_batch, data, self.args)
            output = compute_loss(
                self.spec, dist, batch, step_reducer(denominator, packed, per_token, weights)
            )
            for name, value in output.metrics.items():
                sums[name] = sums.get(name, 0.0) + float(value)
            on_log_probs(micro_batch, packed, dist.log_probs(packed.targets).detach())
            return output.loss

        self.model.train_step([pack([data.samples[i] for i in part], self.device) for part in mine], loss_of)
        self.gradients.collect()
        metrics = add_up_metrics(sums, self.parallel)
        metrics["grad_norm"] = self.gradients.clip(metrics["loss"], self.args.clip_grad, where)
        return metrics

    def gather_weights(self, dtype: torch.dtype | None) -> dict[str, Tensor]:
        return gather_weights(self.weights, dtype, self.parallel)

    def write_extras(self) -> Callable[[Path], None]:
        """Adapters, as PEFT reads them."""
        if not self.args.use_lora:
            return super().write_extras()
        write = self.adapter_writer()

        def write_extras(folder: Path) -> None:
            write(folder / "adapter")

        return write_extras

    def adapter_writer(self) -> Callable[[Path], str]:
        base = str(Path(self.first_weights()).resolve())
        write = adapter_writer(self.weights, self.parallel, self.args, base)
        return lambda folder: weights_checksum(write(folder))

    def add_up(self, values: Tensor) -> Tensor:
        return sum_over(values, self.parallel.dp)

    def clear_gradients(self) -> None:
        self.gradients.clear()

    def update(self) -> None:
        self.gradients.masters.move(self.optimizer)
