"""The training core of one rank. It knows nothing of Ray, engines or rollouts: samples in, weights out."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from slime import checkpoints
from slime.backends.fsdp.checkpoint import CheckpointWriter, Part, load_checkpoint
from slime.backends.fsdp.critic import PREFIX as CRITIC
from slime.backends.fsdp.critic import Critic
from slime.backends.fsdp.distributed import add_up, broadcast, join, merge_over_ranks
from slime.backends.fsdp.loading import load_model, stored_dtype
from slime.backends.fsdp.lora import add_adapters, describe, write_adapter
from slime.backends.fsdp.metrics import mean_of_steps, method_metrics, rollout_metrics
from slime.backends.fsdp.mismatch import Mismatch
from slime.backends.fsdp.model import (
    gather_trained,
    gather_weights,
    write_model_folder,
)
from slime.backends.fsdp.optimizer import build_optimizer, learning_rate, set_learning_rate
from slime.backends.fsdp.packing import PackedBatch, check_samples
from slime.backends.fsdp.postprocess import postprocess
from slime.backends.fsdp.reference import Reference
from slime.backends.fsdp.rollout_data import (
    RolloutData,
    advantage_metrics,
    check_inputs,
    engine_log_probs,
    group_metrics,
    token_advantages,
)
from slime.backends.fsdp.staleness import staleness_metrics
from slime.backends.fsdp.step import (
    by_sample,
    clip_and_check,
    forward_backward,
    trained_log_probs,
)
from slime.backends.fsdp.teacher import Teacher
from slime.backends.fsdp.teacher_data import check_ids
from slime.backends.fsdp.teacher_model import make_teacher
from slime.checkpoints import CheckpointState, is_checkpoint
from slime.losses import loss_spec
from slime.schedule import MicroBatch, Schedule, ScheduleLimits, Step, build_schedule
from slime.types import Sample
from slime.utils.checksum import weights_checksum
from slime.utils.files import commit_folder, fresh_folder
from slime.utils.logging import event

logger = logging.getLogger(__name__)


class FSDPTrainer:
    """One of `world_size` ranks that train a Hugging Face model with FSDP2. All ranks make the same calls.

    Args:
        args: `slime.arguments.Arguments`.
        init_method, store: how several ranks find each other, as in `torch.distributed.init_process_group`.

    Raises:
        ConfigError: a model folder that cannot be loaded, a loss that does not exist.
    """

    def __init__(
        self, args: Any, rank: int = 0, world_size: int = 1, init_method: str | None = None, store: Any = None
    ) -> None:
        self.args, self.rank, self.world_size = args, rank, world_size
        on_gpu = args.actor_num_gpus_per_node > 0
        torch.set_num_threads(args.train_threads)
        self.mesh = join(rank, world_size, on_gpu, init_method, store, one_node=args.actor_num_nodes == 1)
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self._seed()
        self.spec = loss_spec(args)
        adapt = partial(add_adapters, args=args) if args.use_lora else lambda model: model
        first = self._first_weights()
        self.model = load_model(first, self.mesh, args, adapt)
        self.vocabulary: int = self.model.config.get_text_config().vocab_size
        self.optimizer = build_optimizer(self.model, args)
        wants_critic = self.spec.needs_advantages and args.advantage_estimator == "ppo"
        self.critic = Critic(args, self.mesh, rank, self.device) if wants_critic else None
        self.reference = Reference(args, self.mesh, self.model, first) if self.spec.needs_reference else None
        self.teacher: Teacher | None = None
        if self.spec.teacher is not None:
            self.teacher = make_teacher(args, rank, self.mesh, self.model, self.reference, first)
        self.writer = CheckpointWriter(args.save, in_background=args.async_save)
        self.global_step = 0
        self.version = 0

    @property
    def parts(self) -> list[Part]:
        """All that changes, as checkpoints hold it."""
        critic = [self.critic.part] if self.critic else []
        return [Part(self.model, self.optimizer), *critic, *(self.reference.parts if self.reference else ())]

    def load(self) -> CheckpointState:
        """Resumes from the latest checkpoint of `save`, else from `load`; without one it is a fresh start.

        Raises:
            CheckpointError: a checkpoint that is not there, or does not fit this run.
        """
        own = checkpoints.find(self.args.save)
        folder = own or checkpoints.find(self.args.load)
        state = CheckpointState()
        if folder is not None:
            reset = own is None and self.args.reset_optimizer_states
            state = load_checkpoint(folder, self.parts, describe(self.args), reset)
        self.global_step, self.version = state.global_step, state.version
        if self.critic is not None:
            self.critic.steps = state.steps_of.get(CRITIC, 0)
        event(logger, "trainer loaded", rollout_id=state.rollout_id, version=state.version, path=state.path)
        return state

    def train(self, rollout_id: int, samples: Sequence[Sample]) -> dict[str, float]:
        """Trains on one rollout and returns its metrics, the same on every rank, which all get all samples.

        Raises:
            DataError: a sample that cannot be trained on; nothing was applied.
            TrainError: loss or gradient of a step is not finite; that step and later ones were not applied.
        """
        started = time.monotonic()
        check_samples(samples, self.vocabulary)
        check_ids(samples, self.vocabulary)
        check_inputs(self.args, self.spec, samples)
        schedule = self._schedule(samples)
        data = self._prepare(schedule, samples)
        postprocess(self.args, rollout_id, data, schedule, self.rank)
        mismatch = Mismatch(self.version)
        where = f"rollout {rollout_id}"
        metrics = self.critic.train(schedule, data, where) if self.critic else {}
        waits = self.critic is not None and rollout_id < self.args.num_critic_only_steps
        steps = [
            self._step(number, step, data, mismatch, f"{where}, step {epoch * len(schedule.steps) + number}")
            for epoch in range(0 if waits else self.args.train_epochs)
            for number, step in enumerate(schedule.steps)
        ]
        if self.reference is not None and self.reference.follow(rollout_id):
            event(logger, "reference follows", rollout_id=rollout_id)
        metrics |= mean_of_steps(steps) | mismatch.metrics() | rollout_metrics(samples, schedule)
        metrics |= advantage_metrics(data, add_up, self.args.use_opd)
        metrics |= group_metrics(self.args, self.spec, samples)
        metrics |= Mismatch.alarm(metrics, self.args.logprob_gap_alarm)
        metrics |= staleness_metrics(samples, schedule, self.version, self.args) | method_metrics(self.args)
        metrics["train_seconds"] = time.monotonic() - started
        event(logger, "rollout trained", rollout_id=rollout_id, **metrics)
        return metrics

    def log_probs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-prob of every response token, at the temperature of its sample, under the present weights."""
        check_samples(samples, self.vocabulary)
        lengths = [len(sample.tokens) for sample in samples]
        responses = [sample.response_length for sample in samples]
        schedule = build_schedule(lengths, responses, self._limits(global_batch_size=None))
        found: dict[int, list[float]] = {}
        for step in schedule.steps:
            mine = step.ranks[self.rank]
            found |= trained_log_probs(self.model, mine, samples, self.device, only_trained=False)
        merged = merge_over_ranks(found)
        return [merged.get(i, []) for i in range(len(samples))]

    def save(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        model_folder: str | None = None,
        wait: bool = True,
    ) -> str:
        """Writes a checkpoint of these weights, which are (or become) `version`; returns its folder.

        Args:
            model_folder: the same weights as `export_weights` wrote them; they become part of the checkpoint.
            wait: return when the checkpoint counts; else, with --async-save, when it is copied.
        """
        state = CheckpointState(rollout_id, version, parent, None, self.global_step)
        extra = {"hf_checkpoint": self.args.hf_checkpoint, "lora": describe(self.args)}
        adapters = gather_trained(self.model, keep=self.rank == 0) if self.args.use_lora else None

        def write_more(folder: Path) -> None:
            if adapters is not None:
                write_adapter(folder / "adapter", self.model, adapters, self._first_weights())
            if model_folder is not None:
                checkpoints.add_model(folder, Path(model_folder))

        path = self.writer.write(state, self.parts, extra, write_more, wait)
        event(logger, "checkpoint saved", rollout_id=rollout_id, version=version, path=path)
        return str(path)

    def finish_save(self) -> None:
        """Returns when no checkpoint is being written any more; raises TrainError if one could not be."""
        self.writer.finish()

    def export_weights(self, folder: str, version: int) -> str:
        """Writes the weights as a Hugging Face folder and returns their checksum, on every rank.

        The folder appears whole or not at all. Tensors have the dtype that engines serve: fp32 on a CPU,
        else the model's own.
        """
        weights = gather_weights(self.model, self._served_dtype(), keep=self.rank == 0)
        checksum = ""
        if self.rank == 0:
            target = Path(folder)
            temporary = fresh_folder(target)
            write_model_folder(temporary, weights, self.args.hf_checkpoint)
            commit_folder(temporary, target)
            checksum = weights_checksum(weights)
        self.version = version
        return broadcast(checksum)

    def close(self) -> None:
        """Leaves the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _seed(self) -> None:
        seed = self.args.seed + self.rank
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)

    def _first_weights(self) -> str:
        """`load` may name a Hugging Face folder instead of checkpoints."""
        load = self.args.load
        if load is not None and (Path(load) / "config.json").is_file() and not is_checkpoint(Path(load)):
            return str(load)
        return str(self.args.hf_checkpoint)

    def _served_dtype(self) -> torch.dtype | None:
        return torch.float32 if self.args.rollout_num_gpus == 0 else stored_dtype(self.args.hf_checkpoint)

    def _limits(self, global_batch_size: int | None) -> ScheduleLimits:
        args = self.args
        return ScheduleLimits(
            world_size=self.world_size,
            max_tokens=args.max_tokens_per_gpu if args.use_dynamic_batch_size else None,
            micro_batch_size=args.micro_batch_size or 1,
            global_batch_size=global_batch_size,
            trim=args.trim_to_global_batch,
            balance=args.balance_data,
        )

    def _schedule(self, samples: Sequence[Sample]) -> Schedule:
        lengths = [len(sample.tokens) for sample in samples]
        trained = [sample.effective_response_length for sample in samples]
        return build_schedule(lengths, trained, self._limits(self.args.global_batch_size))

    def _prepare(self, schedule: Schedule, samples: Sequence[Sample]) -> RolloutData:
        """Reference log-probs, values, advantages, and old log-probs for the steps before which the policy will
        have moved."""
        data = RolloutData(samples, version=self.version)
        mine = [i for step in schedule.steps for micro_batch in step.ranks[self.rank] for i in micro_batch]
        from_engine = self.args.use_rollout_logprobs
        if from_engine:
            data.old_log_probs = engine_log_probs(samples, mine)
        elif schedule.steps and self.args.train_epochs == 1:
            data.unmoved = frozenset(schedule.steps[0].samples)
        if self.critic is not None:
            data.values = self.critic.values(schedule, samples)
        policy_loss = self.spec.needs_advantages or self.spec.teacher == "topk"
        for number, step in enumerate(schedule.steps):
            part = step.ranks[self.rank]
            if self.reference is not None:
                found = self.reference.log_probs(part, samples, self.device)
                data.ref_log_probs = (data.ref_log_probs or {}) | found
            if self.teacher is not None:
                self.teacher.read(step, data, self.device)
            moves = number > 0 or self.args.train_epochs > 1
            if not from_engine and (self.spec.needs_old or (moves and policy_loss)):
                watch = self.teacher.keeping(number, step, data) if self.teacher and moves else None
                data.old_log_probs |= trained_log_probs(self.model, part, samples, self.device, watch)
        if self.spec.needs_advantages:
            data.advantages = token_advantages(self.args, data, mine, add_up)
        return data

    def _step(
        self, number: int, step: Step, data: RolloutData, mismatch: Mismatch, where: str
    ) -> dict[str, float]:
        def compare(micro_batch: MicroBatch, packed: PackedBatch, log_probs: Tensor) -> None:
            for i, values in by_sample(micro_batch, packed, log_probs).items():
                known = {} if self.args.use_rollout_logprobs else data.old_log_probs
                mismatch.add(data.samples[i], known.get(i, values))

        self.optimizer.zero_grad(set_to_none=True)
        try:
            metrics = forward_backward(
                self.model,
                self.spec,
                step,
                self.rank,
                data,
                self.device,
                self.args,
                compare,
                self.teacher.teaching(number, step, data) if self.teacher else None,
            )
            metrics["grad_norm"] = clip_and_check(self.model, metrics["loss"], self.args.clip_grad, where)
            metrics["lr"] = learning_rate(self.args, self.global_step)
            set_learning_rate(self.optimizer, metrics["lr"])
            self.optimizer.step()
        finally:
            self.optimizer.zero_grad(set_to_none=True)
        self.global_step += 1
        return metrics
