"""The training core for a model at a service: the same loop, losses and metrics, without a local model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor
from transformers import AutoConfig

from claw_base.run_folder.usage import Meter, cost_of, meter_path, read_prices, usage_of, write_prices
from slime.errors import ConfigError, DataError
from slime.rented.service import AdamStep, ServiceRefuses, ServiceSettings, connect
from slime.rented.trainer.learner import UNBOUNDED, OnePass, RentedLearner
from slime.rented.trainer.model import RentedModel
from slime.rented.trainer.places import RentedPlaces
from slime.rented.trainer.retry import loses_trainer, with_retries
from slime.training.core.batch import TrainBatch
from slime.training.core.packing import PackedBatch, check_samples
from slime.training.core.part import Part
from slime.training.core.step import step_reducer, token_weights, values_of
from slime.training.export import Weights
from slime.training.schedule import Step
from slime.training.trainer import Trainer
from slime.types import Sample
from slime.weights.checkpoints import CheckpointState, lora_settings
from slime.weights.probe import Probe

logger = logging.getLogger(__name__)

ENTROPY = "entropy"
"""A metric of every loss that a rented model cannot provide; flags that train on it are rejected."""
NOT_LOCAL = "the weights are at the service, not on this machine"


class RentedTrainer(Trainer):
    """The only rank of a run. The state at the service is identified by addresses (`places`).

    Log-probs of policy, base model and engine are at temperature 1; a sample's temperature is ignored.
    """

    backend = "rented"
    learner: RentedLearner

    def divide(self) -> tuple[int, int]:
        return 0, 1

    def load_policy(self, folder: str) -> RentedLearner:
        args = self.args
        self.spec = replace(self.spec, components=tuple(c for c in self.spec.components if c.name != ENTROPY))
        settings = ServiceSettings(args.rented_model, args.rented_url, args.lora_rank or 0, args.seed)
        service = connect(args.rented_service, settings)
        with_retries(service.check)
        vocabulary = (
            AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            .get_text_config()
            .vocab_size
        )
        meter = Meter(meter_path(args.run_dir, "trainer"), "trainer")
        model = RentedModel(service, int(vocabulary), meter)
        if args.rented_prices:
            write_prices(args.run_dir, read_prices(args.rented_prices, args.rented_model), args.rented_model)
        self.places = RentedPlaces(model, args.rented_model, args.save)
        adam = AdamStep(
            args.lr, args.adam_beta1, args.adam_beta2, args.adam_eps, args.weight_decay, args.clip_grad
        )
        return RentedLearner(model, adam)

    def load_critic(self) -> NoReturn:
        raise ConfigError("--advantage-estimator ppo needs a critic, which services do not support; use grpo")

    def load_frozen(self, folder: str) -> NoReturn:
        raise ConfigError(
            f"{folder} cannot be the teacher or reference of a rented model, only its own base can (--teacher-model base)"
        )

    def weights_part(self, model: object, prefix: str) -> NoReturn:
        raise NotImplementedError(NOT_LOCAL)

    def whole_weights(self, dtype: torch.dtype | None) -> Weights:
        raise NotImplementedError(NOT_LOCAL)

    def gather_adapter(self, base: str) -> Callable[[Path], dict[str, Tensor]]:
        raise NotImplementedError(NOT_LOCAL)

    def add_up(self, values: Tensor) -> Tensor:
        return values

    @property
    def parts(self) -> list[Part]:
        """Returns []: this process has no state that changes."""
        return []

    def probe(self) -> Probe | None:
        """Returns None: engine and trainer use the same address at the service, so there is nothing to verify."""
        return None

    def load(self) -> CheckpointState:
        """Resumes from the latest checkpoint in `save`, else from `load`, else starts a new adapter."""
        state = self.places.load(self.args.load, self.args.rented_state, lora_settings(self.args))
        self.global_step, self.version = state.global_step, state.version
        return state

    def return_to(self, checkpoint: str) -> None:
        state = self.places.return_to(Path(checkpoint), lora_settings(self.args))
        self.global_step, self.version = state.global_step, state.version

    @loses_trainer
    def export_weights(self, folder: str, version: int, whole: bool = True) -> str:
        """Saves the weights for sampling at the service; records the address in the folder. Returns its checksum."""
        self.version = version
        return self.places.export(Path(folder), version, self.global_step)

    def keeps(self, folder: str) -> bool:
        return self.places.keeps(Path(folder))

    def share_weights(self, slots: str, version: int) -> tuple[str, str]:
        return "", NOT_LOCAL

    @loses_trainer
    def save(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        model_folder: str | None = None,
        wait: bool = True,
        hold: bool = False,
    ) -> str:
        """Saves weights and optimizer at the service; records the address in the checkpoint. `hold`: it becomes
        valid after `activate_checkpoint`."""
        state = CheckpointState(rollout_id, version, parent, None, self.global_step)
        extra = {
            "hf_checkpoint": self.args.hf_checkpoint,
            "lora": lora_settings(self.args),
            "backend": self.backend,
        }
        return self.places.save(state, extra, None if model_folder is None else Path(model_folder), hold)

    def finish_save(self) -> None:
        """Does nothing: `save` returns when the checkpoint is valid."""

    @loses_trainer
    def save_external_state(self) -> str:
        return self.places.keep()

    def restore_external_state(self, kept: object) -> None:
        self.places.resume(str(kept))

    @loses_trainer
    def train(self, rollout_id: int, samples: Sequence[Sample]) -> dict[str, float]:
        """Like `Trainer.train`. A sample that the service rejects for the teacher or reference is dropped and
        counted."""
        check_samples(samples, self.vocabulary)
        if unsupported := next((s for s in samples if s.divergence is not None), None):
            raise DataError(
                f"sample {unsupported.index!r} has divergence {unsupported.divergence!r}, which needs a teacher's most "
                "likely ids; a service returns only the log-probs of sampled tokens"
            )
        kept, failed = self._ask_base(samples)
        try:
            metrics = super().train(rollout_id, kept)
        finally:
            self.model.forget_answers()
        metrics["teacher_failed"] = float(failed)
        other_temperatures = sum(sample.temperature != 1.0 for sample in samples)
        metrics["other_temperature"] = other_temperatures / max(len(samples), 1)
        self.model.meter.flush()
        return metrics | spent(self.args.run_dir, self.args.rented_prices, self.args.rented_model)

    @property
    def model(self) -> RentedModel:
        return self.learner.model

    @loses_trainer
    def log_probs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Returns the log-probs of every response token under the current weights, in one request."""
        check_samples(samples, self.vocabulary)
        sequences = [sample.tokens for sample in samples if sample.response_length]
        results = iter(with_retries(lambda: self.model.forward(sequences)) if sequences else [])
        return [next(results)[-n:] if (n := sample.response_length) else [] for sample in samples]

    def _ask_base(self, samples: Sequence[Sample]) -> tuple[list[Sample], int]:
        """Requests all base-model log-probs at once; returns the samples, with failed ones masked from training, and
        the number of failures."""
        questions = [self._questions(sample) for sample in samples]
        self.model.request_base([ids for sequences in questions for ids in sequences])
        kept, failed = list(samples), 0
        for i, sequences in enumerate(questions):
            try:
                for ids in sequences:
                    self.model.of_base(ids)
            except ServiceRefuses as error:
                failed += 1
                kept[i] = replace(samples[i], loss_mask=[0] * samples[i].response_length)
                logger.warning(
                    "sample %r is dropped, the service rejected the request for its teacher: %s",
                    samples[i].index,
                    error,
                )
        return kept, failed

    def _questions(self, sample: Sample) -> list[list[int]]:
        if not sample.effective_response_length:
            return []
        sequences = [sample.tokens] if self.reference is not None else []
        if self.teacher is not None and self.args.teacher_model == "base":
            sequences += self.teacher.prompts(sample)
        return sequences

    def _step(self, number: int, step: Step, data: TrainBatch, mismatch: Any, where: str) -> dict[str, float]:
        loss, args = self.args.rented_loss, self.args
        high = args.eps_clip if args.eps_clip_high is None else args.eps_clip_high
        clip = UNBOUNDED if loss == "importance_sampling" else (1 - args.eps_clip, 1 + high)
        self.learner.one_pass = (
            None if loss == "exact" else OnePass(loss, clip, partial(self._terms, step, data))
        )
        metrics = super()._step(number, step, data, mismatch, where)
        kept = {name: value for name, value in metrics.items() if not name.endswith("grad_norm")}
        norm = next((x for name, x in self.learner.measured.items() if name.endswith("grad_norm")), None)
        return kept if norm is None else kept | {"grad_norm": norm}

    def _terms(self, step: Step, data: TrainBatch, number: int, packed: PackedBatch) -> tuple[Tensor, Tensor]:
        """Returns the old log-probs, and the advantages times each token's weight in the step's mean."""
        micro_batch = step.ranks[0][number]
        old = values_of(micro_batch, packed, data.old_log_probs)
        advantages = values_of(micro_batch, packed, data.advantages)
        assert old is not None and advantages is not None
        per_token = self.args.calculate_per_token_loss
        weights = token_weights(micro_batch, data, self.args)
        mean = step_reducer(step.denominator(per_token), packed, per_token, weights)
        ones = torch.ones_like(advantages, requires_grad=True)
        (share,) = torch.autograd.grad(mean(ones), ones)
        return old, advantages * share


def spent(run_dir: str, prices: str | None, model: str) -> dict[str, float]:
    """Returns token counts by purpose and kind, over all processes of the run; also US dollars if prices are
    known."""
    counts = {
        f"tokens_{role}_{kind}": float(count)
        for role, tokens in usage_of(run_dir).items()
        for kind, count in tokens.items()
        if count
    }
    if prices:
        counts["cost_usd"] = cost_of(run_dir, read_prices(prices, model))
    return counts
