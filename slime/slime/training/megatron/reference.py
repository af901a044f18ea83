"""The model that the policy is compared with by KL, and the one that teaches it, spread over the same ranks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from slime.errors import ConfigError
from slime.training.core.checkpoint import Part
from slime.training.core.step import trained_log_probs
from slime.training.core.teacher import Teacher
from slime.training.fsdp.reference import PREFIX
from slime.training.fsdp.teacher_model import check_tokenizer
from slime.training.megatron.checkpoint import MegatronPart
from slime.training.megatron.gradients import Gradients
from slime.training.megatron.loading import load_model
from slime.training.megatron.lora import without_adapters
from slime.training.megatron.pipeline import ShardedModel
from slime.training.megatron.weights import WeightMap
from slime.training.schedule import MicroBatch
from slime.types import Sample


class Reference:
    """Frozen, or following the policy every --ref-update-interval rollouts; then it is part of checkpoints.

    Frozen, it is the base of the policy's adapters where that is the same model, so it takes no memory.

    Args:
        first: folder of the weights that the policy started from.

    Raises:
        ConfigError: the reference shall follow a policy of another shape.
    """

    def __init__(
        self, args: Any, policy: ShardedModel, weights: WeightMap, first: str, device: torch.device
    ) -> None:
        self.policy, self.policy_weights, self.interval = policy, weights, args.ref_update_interval
        self.model, self.weights = policy, weights
        same = Path(args.ref_load).resolve() == Path(first).resolve()
        if args.use_lora and same and self.interval is None:
            return
        self.model, self.weights = load_model(args.ref_load, args, policy.parallel, device)
        self.model.requires_grad_(False)
        if self.interval is not None:
            self._check_shapes(args.ref_load)

    @property
    def parts(self) -> list[Part]:
        """What a checkpoint holds of it."""
        if self.interval is None:
            return []
        weights = Gradients(self.model, self.weights)
        return [MegatronPart(self.model, None, PREFIX, gradients=weights)]

    def log_probs(
        self, micro_batches: Sequence[MicroBatch], samples: Sequence[Sample], device: torch.device
    ) -> dict[int, list[float]]:
        """Log-probs of the trained tokens, by position of the sample."""
        with without_adapters(self.policy) if self.model is self.policy else nullcontext():
            return trained_log_probs(self.model, micro_batches, samples, device)

    @torch.no_grad()
    def follow(self, rollout_id: int) -> bool:
        """Takes over the policy's weights if `rollout_id`, just trained, ends an interval. Tells whether it did."""
        if self.interval is None or (rollout_id + 1) % self.interval:
            return False
        for name, parameter in self.model.core.named_parameters():
            parameter.copy_(self.policy_weights.value(name))
        return True

    def _check_shapes(self, folder: str) -> None:
        mine = {name: x.shape for name, x in self.model.core.named_parameters()}
        policy = {name: x.shape for name, x in self.policy.core.named_parameters()}
        if any(policy.get(name) != shape for name, shape in mine.items()):
            raise ConfigError(
                f"--ref-update-interval: the model in {folder} has another shape than the policy and cannot "
                "take over its weights"
            )


def make_teacher(
    args: Any,
    replica: int,
    policy: ShardedModel,
    vocabulary: int,
    reference: Reference | None,
    first: str,
    device: torch.device,
) -> Teacher:
    """The teacher of the flags.

    Args:
        vocabulary: tokens of the policy. first: folder of the weights that training began with.

    Raises:
        ConfigError: a model that cannot be loaded, or with another vocabulary.
    """
    if args.teacher_source != "trainer":
        return Teacher(args, replica, None)
    if args.teacher_model == "self":
        return Teacher(args, replica, policy)
    folder = first if args.teacher_model == "base" else str(args.teacher_model)
    if args.use_lora and Path(folder).resolve() == Path(first).resolve():
        return Teacher(args, replica, policy, partial(without_adapters, policy))
    frozen = reference is not None and reference.interval is None
    if frozen and Path(folder).resolve() == Path(args.ref_load).resolve():
        return Teacher(args, replica, reference.model)  # type: ignore[union-attr]
    if folder != first:
        check_tokenizer(folder, args.hf_checkpoint)
    model, weights = load_model(folder, args, policy.parallel, device)
    model.requires_grad_(False)
    if weights.hf.vocab_size != vocabulary:
        raise ConfigError(
            f"the teacher in {folder} has {weights.hf.vocab_size} tokens, the student {vocabulary}"
        )
    return Teacher(args, replica, model)
