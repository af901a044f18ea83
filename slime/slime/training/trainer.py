"""What training a rollout means, whatever holds the model: samples in, metrics and weights out.

It knows nothing of Ray, engines or rollouts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from slime.training.backend import Backend
from slime.training.core.batch import (
    TrainBatch,
    check_inputs,
    engine_log_probs,
    token_advantages,
)
from slime.training.core.distributed import merge_over_ranks
from slime.training.core.metrics import (
    Mismatch,
    advantage_metrics,
    group_metrics,
    mean_of_steps,
    rollout_metrics,
    staleness_metrics,
)
from slime.training.core.model import computing_dtype
from slime.training.core.optimizer import learning_rate
from slime.training.core.packing import PackedBatch, check_samples
from slime.training.core.postprocess import postprocess
from slime.training.core.step import by_sample, forward_backward, trained_log_probs
from slime.training.core.token_records import TokenRecords
from slime.training.schedule import MicroBatch, Schedule, ScheduleLimits, Step, build_schedule
from slime.trajectories import trajectories_of
from slime.types import Sample
from slime.utils.logging import event
from slime.weights.probe import Probe, probe_ids

logger = logging.getLogger(__name__)


class Trainer(Backend):
    """One rank of a training run; all ranks make the same calls and get all samples.

    Attributes:
        rate_scale: what the learning rate of the schedule is multiplied by.
    """

    rate_scale: float = 1.0

    records: TokenRecords | None = None

    def train(self, rollout_id: int, samples: Sequence[Sample]) -> dict[str, float]:
        """Trains on one rollout and returns its metrics, the same on every rank, which all get all samples.

        Raises:
            DataError: a sample that cannot be trained on; nothing was applied.
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
        keeps = self.args.keep_token_records > 0
        self.records = TokenRecords(self.args, rollout_id, self.version) if keeps else None
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
        if self.records is not None:
            self.records.write(data, self.rank)
        metrics |= mean_of_steps(steps) | mismatch.metrics() | rollout_metrics(samples, schedule)
        metrics |= advantage_metrics(data, self.add_up, self.args.use_opd)
        metrics |= group_metrics(self.args, self.spec, samples)
        metrics |= Mismatch.alarm(metrics, self.args.logprob_gap_alarm)
        metrics |= staleness_metrics(samples, schedule, self.version, self.args) | dict(self.spec.reported)
        metrics["train_seconds"] = time.monotonic() - started
        event(logger, "rollout trained", rollout_id=rollout_id, **metrics)
        return metrics

    def log_probs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-prob of every response token, at the temperature of its sample, under the present weights."""
        check_samples(samples, self.vocabulary, self.sees)
        lengths = [len(sample.tokens) for sample in samples]
        responses = [sample.response_length for sample in samples]
        schedule = build_schedule(lengths, responses, self._limits(global_batch_size=None))
        found: dict[int, list[float]] = {}
        for step in schedule.steps:
            mine = step.ranks[self.replica]
            found |= trained_log_probs(self.model, mine, samples, self.device, only_trained=False)
        merged = merge_over_ranks(found)
        return [merged.get(i, []) for i in range(len(samples))]

    def probe(self) -> Probe | None:
        """What these weights say, for an engine that may load them wrong (SGLang, vLLM). Every rank must call
        this."""
        if self.args.rollout_backend == "embedded":
            return None
        ids = probe_ids(self.vocabulary)
        [log_probs] = self.log_probs([Sample(tokens=ids, response_length=len(ids) - 1, temperature=1.0)])
        in_bf16 = computing_dtype(self.args, self.device.type) == torch.bfloat16
        return Probe(
            ids, log_probs, "bfloat16" if in_bf16 else str(self._served_dtype()).removeprefix("torch.")
        )

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
        behind = [len(sample.next_tokens) if self.args.echo_coef else 0 for sample in samples]
        lengths = [len(sample.tokens) + more for sample, more in zip(samples, behind, strict=True)]
        trained = [sample.effective_response_length for sample in samples]
        companions = {i: sample.companion for i, sample in enumerate(samples) if sample.companion}
        limits = self._limits(self.args.global_batch_size)
        return build_schedule(lengths, trained, limits, companions, trajectories_of(samples))

    def _prepare(self, schedule: Schedule, samples: Sequence[Sample]) -> TrainBatch:
        """Reference log-probs, values, advantages, and old log-probs for the steps before which the policy will
        have moved."""
        data = TrainBatch(samples, version=self.version)
        mine = [i for step in schedule.steps for micro_batch in step.ranks[self.replica] for i in micro_batch]
        from_engine = self.args.use_rollout_logprobs
        if from_engine:
            data.old_log_probs = engine_log_probs(samples, mine)
        elif schedule.steps and self.args.train_epochs == 1:
            beside = [i for step in schedule.steps if _accompanies(step, samples) for i in step.samples]
            data.unmoved = frozenset(schedule.steps[0].samples).union(beside)
        if self.critic is not None:
            data.values = self.critic.values(schedule, samples)
        policy_loss = self.spec.needs_advantages or self.spec.teacher == "topk"
        for number, step in enumerate(schedule.steps):
            part = step.ranks[self.replica]
            if self.reference is not None:
                found = self.reference.log_probs(part, samples, self.device)
                data.ref_log_probs = (data.ref_log_probs or {}) | found
            if self.teacher is not None:
                self.teacher.read(step, data, self.device)
            later = number > 0 and not _accompanies(
                step, samples
            )  # companions are compared with the weights they meet
            moves = later or self.args.train_epochs > 1 or self.asks_teacher_before
            if not from_engine and (self.spec.needs_old or (moves and policy_loss)):
                watch = self.teacher.keeping(number, step, data) if self.teacher and moves else None
                data.old_log_probs |= trained_log_probs(self.model, part, samples, self.device, watch)
        if self.spec.needs_advantages:
            data.advantages = token_advantages(self.args, data, mine, self.add_up)
        return data

    def _step(
        self, number: int, step: Step, data: TrainBatch, mismatch: Mismatch, where: str
    ) -> dict[str, float]:
        def compare(micro_batch: MicroBatch, packed: PackedBatch, log_probs: Tensor) -> None:
            found = by_sample(micro_batch, packed, log_probs)
            if records is not None:
                records.add_log_probs(found)
            for i, values in found.items():
                known = {} if self.args.use_rollout_logprobs else data.old_log_probs
                mismatch.add(data.samples[i], known.get(i, values))

        learner, args, records = self.learner, self.args, self.records
        teach = self.teacher.teaching(number, step, data) if self.teacher else None
        if teach is not None and records is not None:
            teach = records.watching(teach, step.ranks[self.replica])
        try:
            learner.clear()
            metrics = forward_backward(
                learner, self.spec, step, self.replica, data, self.device, args, compare, teach
            )
            metrics["grad_norm"] = learner.clip(metrics["loss"], args.clip_grad, where)
            metrics["lr"] = learning_rate(args, self.global_step) * self.rate_scale
            learner.update(metrics["lr"])
        finally:
            learner.clear()
        if _accompanies(step, data.samples):
            return {f"companion_{name}": value for name, value in metrics.items()}
        self.global_step += 1
        return metrics


def _accompanies(step: Step, samples: Sequence[Sample]) -> bool:
    """Whether it is a step of companions."""
    return all(samples[i].companion for i in step.samples)
