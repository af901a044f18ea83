"""The training core of one rank with FSDP2."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slime.losses import loss_spec
from slime.training.core.batch import RolloutData
from slime.training.core.checkpoint import CheckpointWriter, Part
from slime.training.core.distributed import add_up, join
from slime.training.core.optimizer import build_optimizer
from slime.training.core.step import OnLogProbs, clip_and_check, forward_backward
from slime.training.fsdp.critic import Critic
from slime.training.fsdp.loading import load_model
from slime.training.fsdp.lora import add_adapters, write_adapter
from slime.training.fsdp.model import gather_trained, gather_weights
from slime.training.fsdp.reference import Reference
from slime.training.fsdp.teacher_model import make_teacher
from slime.training.schedule import Step
from slime.training.trainer import Trainer
from slime.weights.checksum import weights_checksum


class FSDPTrainer(Trainer):
    """One of `world_size` ranks that train a Hugging Face model with FSDP2. All ranks make the same calls.

    Args:
        args: `slime.arguments.Arguments`.
        init_method, store: how several ranks find each other, as in `torch.distributed.init_process_group`.

    Raises:
        ConfigError: a model folder that cannot be loaded, a loss that does not exist.
    """

    backend = "fsdp"

    def __init__(
        self, args: Any, rank: int = 0, world_size: int = 1, init_method: str | None = None, store: Any = None
    ) -> None:
        self.args, self.rank, self.world_size = args, rank, world_size
        self.replica, self.replicas = rank, world_size
        on_gpu = args.actor_num_gpus_per_node > 0
        torch.set_num_threads(args.train_threads)
        self.mesh = join(rank, world_size, on_gpu, init_method, store, one_node=args.actor_num_nodes == 1)
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self.seed()
        self.spec = loss_spec(args)
        adapt = partial(add_adapters, args=args) if args.use_lora else None
        first = self.first_weights()
        self.model = load_model(first, self.mesh, args, adapt)
        self.vocabulary = self.model.config.get_text_config().vocab_size
        self.optimizer = build_optimizer(self.model, args)
        if self.spec.needs_advantages and args.advantage_estimator == "ppo":
            self.critic = Critic(args, self.mesh, rank, self.device)
        if self.spec.needs_reference:
            self.reference = Reference(args, self.mesh, self.model, first)
        if self.spec.teacher is not None:
            self.teacher = make_teacher(args, rank, self.mesh, self.model, self.reference, first)
        self.writer = CheckpointWriter(args.save, in_background=args.async_save)

    @property
    def parts(self) -> list[Part]:
        """All that changes, as checkpoints hold it."""
        critic = [self.critic.part] if self.critic else []
        return [Part(self.model, self.optimizer), *critic, *(self.reference.parts if self.reference else ())]

    def forward_backward(
        self, number: int, step: Step, data: RolloutData, on_log_probs: OnLogProbs, where: str
    ) -> dict[str, float]:
        metrics = forward_backward(
            self.model,
            self.spec,
            step,
            self.rank,
            data,
            self.device,
            self.args,
            on_log_probs,
            self.teacher.teaching(number, step, data) if self.teacher else None,
        )
        metrics["grad_norm"] = clip_and_check(self.model, metrics["loss"], self.args.clip_grad, where)
        return metrics

    def gather_weights(self, dtype: torch.dtype | None) -> dict[str, Tensor]:
        return gather_weights(self.model, dtype, keep=self.rank == 0)

    def add_up(self, values: Tensor) -> Tensor:
        return add_up(values)

    def write_extras(self) -> Callable[[Path], None]:
        """Adapters, as PEFT reads them."""
        if not self.args.use_lora:
            return super().write_extras()
        write = self.adapter_writer()

        def write_extras(folder: Path) -> None:
            write(folder / "adapter")

        return write_extras

    def adapter_writer(self) -> Callable[[Path], str]:
        adapters = gather_trained(self.model, keep=self.rank == 0)
        base = str(Path(self.first_weights()).resolve())
        return lambda folder: weights_checksum(write_adapter(folder, self.model, adapters, base))
