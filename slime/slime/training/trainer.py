"""Trains on a rollout with any backend: from samples to metrics and new weights.

A backend decides how models are divided over ranks. The models (policy, critic, reference, teacher), their
checkpoints and the training on a rollout are the same for all backends. This module does not depend on Ray,
engines or rollouts.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from slime.losses import LossSpec
from slime.training.core.batch import (
    TrainBatch,
    check_inputs,
    engine_log_probs,
    token_advantages,
)
from slime.training.core.checkpoint import CheckpointWriter, seed_all
from slime.training.core.critic import Critic
from slime.training.core.distributed import device_of, join, merge_over_ranks
from slime.training.core.following import LOSS as LOSS_OF_FOLLOWERS
from slime.training.core.following import Following, kind_of, reported, taught_length
from slime.training.core.learner import Learner, averaged, learning_rate, step_scale
from slime.training.core.metrics import (
    Mismatch,
    advantage_metrics,
    group_metrics,
    mean_of_steps,
    rollout_metrics,
    staleness_metrics,
)
from slime.training.core.model import TrainedModel, ValueModel, computing_dtype
from slime.training.core.objective import loss_spec
from slime.training.core.packing import PackedBatch, check_samples, common_starts
from slime.training.core.part import Part
from slime.training.core.reference import PREFIX as REFERENCE
from slime.training.core.reference import Reference
from slime.training.core.step import StepInputs, Teach, by_sample, forward_backward, trained_log_probs
from slime.training.core.teacher import Teacher, make_teacher
from slime.training.core.token_records import TokenRecords
from slime.training.core.user_hooks import postprocess
from slime.training.persistence import Persistent
from slime.training.schedule import MicroBatch, Schedule, ScheduleLimits, Step, build_schedule
from slime.types import Sample, trajectories_of
from slime.utils.idle_processors import IdleProcessors
from slime.utils.logging import event
from slime.utils.sdpa import without_cudnn
from slime.weights.probe import Probe, probe_ids

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)


class Backend(Persistent):
    """One of `world_size` ranks that train a Hugging Face model. All ranks must make the same calls.

    A replica is the set of ranks that share one model; replicas train on different samples.

    Args:
        args: `slime.arguments.Arguments`.
        init_method, store: rendezvous of several ranks: a file (`file://...`), or a torch store.

    Attributes:
        replica, replicas: index of this rank's replica, and number of replicas.
        learner: the policy.

    Raises:
        ConfigError: the backend cannot load the model, the ranks do not divide it, or the loss is unknown.
    """

    replica: int
    replicas: int
    mesh: DeviceMesh
    device: torch.device
    spec: LossSpec
    learner: Learner[TrainedModel]
    reference: Reference | None = None
    teacher: Teacher | None = None

    def __init__(
        self,
        args: Arguments,
        rank: int = 0,
        world_size: int = 1,
        init_method: str | None = None,
        store: object = None,
    ) -> None:
        self.args, self.rank, self.world_size = args, rank, world_size
        on_gpu = args.actor_num_gpus_per_node > 0
        torch.set_num_threads(args.train_threads)
        self.threads = IdleProcessors(args.train_threads) if args.use_idle_processors and not on_gpu else None
        without_cudnn()
        self.mesh = join(rank, world_size, on_gpu, init_method, store, one_node=args.actor_num_nodes == 1)
        self.device = device_of(self.mesh)
        self.replica, self.replicas = self.divide()
        seed_all(args.seed + rank)
        self.spec = loss_spec(args)
        if self.args.merge_prefixes and not self.merges:
            event(
                logger,
                "prefixes are not shared",
                reason="the custom loss takes the logits of each sample",
            )
        first = self.first_weights()
        self.learner = self.load_policy(first)
        if self.spec.needs_advantages and args.advantage_estimator == "ppo":
            self.critic = Critic(args, self.load_critic(), self.replica, self.device)
        if self.spec.needs_reference:
            self.reference = Reference(args, self.model, first, self.load_frozen)
        if self.spec.teacher is not None:
            self.teacher = make_teacher(
                args, self.replica, self.model, self.reference, first, self.load_frozen
            )
        self.writer = CheckpointWriter(args.save, in_background=args.async_save)

    def divide_processors(self) -> None:
        """Adjusts the number of threads to the idle processors, with --use-idle-processors."""
        if self.threads is not None:
            torch.set_num_threads(self.threads.count())

    @property
    def model(self) -> TrainedModel:
        """Returns the policy."""
        return self.learner.model

    @property
    def vocabulary(self) -> int:
        """Returns the size of the policy's vocabulary."""
        return self.model.vocabulary

    @property
    def merges(self) -> bool:
        """Returns whether training processes a common prefix of samples only once."""
        return self.args.merge_prefixes and self.spec.on_logits is None

    @property
    def sees(self) -> bool:
        """Returns whether the policy supports images."""
        return False

    @property
    def parts(self) -> list[Part]:
        """Returns all trained parts as checkpoint parts."""
        critic = [self.critic.part] if self.critic else []
        follows = self.reference is not None and self.reference.follows
        reference = [self.weights_part(self.reference.model, REFERENCE)] if self.reference and follows else []
        return [self.learner.part(), *critic, *reference]

    @property
    def resident(self) -> list[Part]:
        """Returns all models in device memory: `parts`, and the frozen models."""
        parts = self.parts
        models = [part.model for part in parts]
        for holder in (self.reference, self.teacher):
            frozen = None if holder is None else holder.model
            if frozen is not None and not any(frozen is model for model in models):
                models.append(frozen)
                parts.append(Part(frozen, None))
        return parts

    @property
    def asks_teacher_before(self) -> bool:
        """Returns whether the teacher must run before every step, not between its forward and backward
        passes."""
        return False

    def save_external_state(self) -> object:
        """Saves trained state that is outside this process; returns a handle for it."""
        return None

    def restore_external_state(self, kept: object) -> None:
        """Restores the state that `save_external_state` saved."""

    @abstractmethod
    def divide(self) -> tuple[int, int]:
        """Divides the ranks; returns the index of this rank's replica, and the number of replicas."""

    @abstractmethod
    def load_policy(self, folder: str) -> Learner[TrainedModel]:
        """Returns the trained model, with adapters if the flags request them."""

    @abstractmethod
    def load_critic(self) -> Learner[ValueModel]:
        """Returns the critic of --critic-load, or one initialized from the policy."""

    @abstractmethod
    def load_frozen(self, folder: str) -> TrainedModel:
        """Returns a model without gradients."""

    @abstractmethod
    def weights_part(self, model: object, prefix: str) -> Part:
        """Returns the checkpoint part of a model without an optimizer."""

    @abstractmethod
    def add_up(self, values: Tensor) -> Tensor:
        """Returns the sum of a CPU tensor over the replicas."""


class Trainer(Backend):
    """One rank of a training run; all ranks must make the same calls, with all samples.

    Attributes:
        rate_scale: factor of the scheduled learning rate.
    """

    rate_scale: float = 1.0

    records: TokenRecords | None = None

    def train(self, rollout_id: int, samples: Sequence[Sample]) -> dict[str, float]:
        """Trains on one rollout and returns its metrics, equal on every rank; all ranks need all samples.

        Raises:
            DataError: a sample cannot be used for training; no step was applied.
            TrainError: loss or gradient of a step is not finite; that step and later ones were not applied.
        """
        started = time.monotonic()
        check_samples(samples, self.vocabulary, self.sees)
        check_inputs(self.args, self.spec, samples)
        schedule = self._schedule(samples)
        data = self._prepare(schedule, samples)
        if self.args.rollout_data_postprocess_path:
            postprocess(self.args, rollout_id, data, schedule, self.replica)
        mismatch = Mismatch(self.version)
        records_tokens = self.args.keep_token_records > 0
        self.records = TokenRecords(self.args, rollout_id, self.version) if records_tokens else None
        label = f"rollout {rollout_id}"
        metrics = self.critic.train(schedule, data, label) if self.critic else {}
        critic_only = self.critic is not None and rollout_id < self.args.num_critic_only_steps
        epochs = 0 if critic_only else self.args.train_epochs
        steps = self._steps(schedule, data, mismatch, label, epochs)
        if self.reference is not None and self.reference.follow(rollout_id):
            event(logger, "reference updated", rollout_id=rollout_id)
        if self.records is not None:
            self.records.write(data, self.rank)
        metrics |= mean_of_steps(steps) | mismatch.metrics() | rollout_metrics(samples, schedule)
        if self.teacher is not None and self.teacher.over_topk:
            metrics |= self.teacher.distance.metrics()
        metrics |= taught_length(samples)
        metrics |= advantage_metrics(data, self.add_up, self.args.use_opd)
        metrics |= group_metrics(self.args, self.spec, samples)
        metrics |= Mismatch.alarm(metrics, self.args.logprob_gap_alarm)
        metrics |= staleness_metrics(samples, schedule, self.version, self.args) | dict(self.spec.reported)
        metrics["train_seconds"] = time.monotonic() - started
        event(logger, "rollout trained", rollout_id=rollout_id, **metrics)
        return metrics

    def log_probs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Returns the log-probs of all response tokens under the current weights, at their samples' temperatures."""
        check_samples(samples, self.vocabulary, self.sees)
        lengths = [len(sample.tokens) for sample in samples]
        responses = [sample.response_length for sample in samples]
        prefixes = common_starts(samples) if self.args.merge_prefixes else None
        limits = self._limits(global_batch_size=None)
        schedule = build_schedule(lengths, responses, limits, prefixes=prefixes)
        log_probs: dict[int, list[float]] = {}
        for step in schedule.steps:
            micro_batches = step.ranks[self.replica]
            log_probs |= trained_log_probs(
                self.model,
                micro_batches,
                samples,
                self.device,
                only_trained=False,
                merge=self.args.merge_prefixes,
            )
        of_all_ranks = merge_over_ranks(log_probs)
        return [of_all_ranks.get(i, []) for i in range(len(samples))]

    def probe(self) -> Probe | None:
        """Returns log-probs of fixed ids, for engines that might load weights incorrectly (SGLang, vLLM).

        Every rank must call this.
        """
        if self.args.rollout_backend == "embedded":
            return None
        ids, of_text = probe_ids(self.args.hf_checkpoint, self.vocabulary)
        [log_probs] = self.log_probs([Sample(tokens=ids, response_length=len(ids) - 1, temperature=1.0)])
        in_bf16 = computing_dtype(self.args, self.device.type) == torch.bfloat16
        dtype = "bfloat16" if in_bf16 else str(self._served_dtype()).removeprefix("torch.")
        return Probe(ids, log_probs, dtype, of_text)

    def close(self) -> None:
        """Leaves the process group."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _limits(self, global_batch_size: int | None) -> ScheduleLimits:
        args = self.args
        return ScheduleLimits(
            world_size=self.replicas,
            max_tokens=args.max_tokens_per_gpu if args.use_dynamic_batch_size else None,
            micro_batch_size=args.micro_batch_size or 1,
            global_batch_size=global_batch_size,
            trim=args.trim_to_global_batch,
            balance=args.balance_data,
        )

    def _schedule(self, samples: Sequence[Sample]) -> Schedule:
        observed = [len(sample.next_tokens) if self.args.echo_coef else 0 for sample in samples]
        lengths = [len(sample.tokens) + count for sample, count in zip(samples, observed, strict=True)]
        trained_lengths = [sample.effective_response_length for sample in samples]
        companions = {i: sample.companion for i, sample in enumerate(samples) if sample.companion}
        limits = self._limits(self.args.global_batch_size)
        kinds = {i: kind_of(sample) for i, sample in enumerate(samples)}
        prefixes = common_starts(samples, bool(self.args.echo_coef)) if self.merges else None
        return build_schedule(
            lengths, trained_lengths, limits, companions, trajectories_of(samples), kinds, prefixes
        )

    def _prepare(self, schedule: Schedule, samples: Sequence[Sample]) -> TrainBatch:
        """Returns the models' outputs for the steps: old, reference and teacher log-probs, values, and
        advantages.

        Every rank makes the same calls in the same order, because the models are divided over the ranks.
        """
        data = TrainBatch(samples, version=self.version)
        positions = [
            i for step in schedule.steps for micro_batch in step.plain(self.replica) for i in micro_batch
        ]
        if self.args.use_rollout_logprobs:
            data.old_log_probs = engine_log_probs(samples, positions)
        else:
            data.ratio_one = self._with_ratio_one(schedule, samples)
        if self.critic is not None:
            data.values = self.critic.values(schedule, samples)
        for number, step in enumerate(schedule.steps):
            self.divide_processors()
            self._add_reference(step, data)
            if self.teacher is not None:
                self.teacher.read(step, data, self.device)
                self.teacher.lead(number, step, data, self.device)
            self._add_old_log_probs(number, step, data)
        if self.spec.needs_advantages:
            data.advantages = token_advantages(self.args, data, positions, self.add_up)
        return data

    def _with_ratio_one(self, schedule: Schedule, samples: Sequence[Sample]) -> frozenset[int]:
        """Returns the samples whose step starts from the weights of their old log-probs: first step and
        companions."""
        if not schedule.steps or self.args.train_epochs != 1:
            return frozenset()
        companions = [i for step in schedule.steps if _accompanies(step, samples) for i in step.samples]
        return frozenset(schedule.steps[0].samples).union(companions)

    def _add_reference(self, step: Step, data: TrainBatch) -> None:
        """Adds log-probs of the reference model."""
        if self.reference is not None:
            log_probs = self.reference.log_probs(step.plain(self.replica), data.samples, self.device)
            data.ref_log_probs = (data.ref_log_probs or {}) | log_probs

    def _add_old_log_probs(self, number: int, step: Step, data: TrainBatch) -> None:
        """Adds log-probs of the weights before the update and, in the same pass, a teacher's log-probs of
        likely ids.

        Only some steps need them for the loss or for advantages; the engine's log-probs may replace them.
        """
        policy_moved = self._moves_before(number, step, data.samples)
        by_ratio = policy_moved and (self.spec.needs_advantages or self.spec.teacher == "topk")
        if self.args.use_rollout_logprobs or not (self.spec.needs_old or by_ratio):
            return
        on_distribution = self.teacher.keeping(number, step, data) if self.teacher and policy_moved else None
        micro_batches = step.plain(self.replica)
        data.old_log_probs |= trained_log_probs(
            self.model,
            micro_batches,
            data.samples,
            self.device,
            on_distribution,
            merge=self.args.merge_prefixes,
        )

    def _moves_before(self, number: int, step: Step, samples: Sequence[Sample]) -> bool:
        """Returns whether weights change before the step, or the teacher must run before it anyway.

        Companions are compared with the weights at their own step.
        """
        later = number > 0 and not _accompanies(step, samples)
        return later or self.args.train_epochs > 1 or self.asks_teacher_before

    def _steps(
        self, schedule: Schedule, data: TrainBatch, mismatch: Mismatch, label: str, epochs: int
    ) -> list[dict[str, float]]:
        """Makes all steps and returns their metrics; with --average-steps, averages the weights afterwards."""
        steps = []
        with averaged(self.parts[:1], self.args.average_steps) as average:
            for epoch in range(epochs):
                for number, step in enumerate(schedule.steps):
                    where = f"{label}, step {epoch * len(schedule.steps) + number}"
                    steps.append(self._step(number, step, data, mismatch, where))
                    average.add()
        return steps

    def _step(
        self, number: int, step: Step, data: TrainBatch, mismatch: Mismatch, where: str
    ) -> dict[str, float]:
        """Trains on one step and returns its metrics; `where` appears in errors."""
        learner, args = self.learner, self.args
        report = partial(self._compare_with_engine, data, mismatch)
        teach = self._teaching(number, step, data)
        try:
            learner.clear()
            inputs = StepInputs(
                args,
                self.spec,
                data,
                step.ranks[self.replica],
                step.denominator(args.calculate_per_token_loss),
                self.device,
                teach,
                Following.of(number, step, data),
                self.divide_processors,
            )
            metrics = forward_backward(learner, inputs, report)
            loss = metrics.get("loss", 0.0) + metrics.get(LOSS_OF_FOLLOWERS, 0.0)
            norm = learner.clip(loss, args.clip_grad, where)
            trained = [data.samples[i] for i in step.samples]
            scale = step_scale(args, data.samples, trained, self.rate_scale, self.spec.unhinted_rate)
            rate = learning_rate(args, self.global_step) * scale
            learner.update(rate)
        finally:
            learner.clear()
        accompanies = _accompanies(step, data.samples)
        self.global_step += not accompanies
        prefix, per_token = "companion_" if accompanies else "", args.calculate_per_token_loss
        return reported(metrics, {"grad_norm": norm, "lr": rate}, step, data.samples, per_token, prefix)

    def _teaching(self, number: int, step: Step, data: TrainBatch) -> Teach | None:
        """Returns the function that runs the teacher for likely ids, and records the results if token records
        are kept."""
        teach = self.teacher.teaching(number, step, data) if self.teacher else None
        if teach is None or self.records is None:
            return teach
        return self.records.watching(teach, step.ranks[self.replica])

    def _compare_with_engine(
        self,
        data: TrainBatch,
        mismatch: Mismatch,
        micro_batch: MicroBatch,
        packed: PackedBatch,
        log_probs: Tensor,
    ) -> None:
        """Compares old log-probs (if missing, `log_probs`) with the engine's."""
        new_log_probs = by_sample(micro_batch, packed, log_probs)
        if self.records is not None:
            self.records.add_log_probs(new_log_probs)
        old_log_probs = {} if self.args.use_rollout_logprobs else data.old_log_probs
        for i, new in new_log_probs.items():
            mismatch.add(data.samples[i], old_log_probs.get(i, new))


def _accompanies(step: Step, samples: Sequence[Sample]) -> bool:
    """Returns whether the step consists of companions."""
    return all(samples[i].companion for i in step.samples)
