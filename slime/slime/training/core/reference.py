"""The reference model of the KL term: frozen, or copied from the policy at intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from slime.errors import ConfigError
from slime.training.core.model import TrainedModel
from slime.training.core.step import trained_log_probs
from slime.training.schedule import MicroBatch
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags.sides import TrainingSide

PREFIX = "reference_"


class Reference:
    """The reference model on one rank; all ranks must make the same calls.

    If a frozen reference equals the base of the policy's adapters, that base is used and takes no additional
    memory. A reference that is updated (--ref-update-interval) is part of checkpoints.

    Args:
        policy: the trained model.
        first: folder of the policy's initial weights.
        load: loads the model in a folder, sharded like the policy.

    Raises:
        ConfigError: the reference is updated from a policy of another shape.

    Attributes:
        followed: it copied the policy's weights after the last rollout.
    """

    followed = False

    def __init__(
        self, args: TrainingSide, policy: TrainedModel, first: str, load: Callable[[str], TrainedModel]
    ) -> None:
        self.policy, self.interval, self.merge = policy, args.ref_update_interval, args.merge_prefixes
        self.model, self.folder = policy, Path(args.ref_load).resolve()
        if args.use_lora and self.is_always(first):
            return
        self.model = load(args.ref_load)
        self.model.requires_grad_(self.follows)  # checkpoints contain only trainable weights
        if self.follows and self.model.shapes() != policy.shapes():
            raise ConfigError(
                f"--ref-update-interval: the model of --ref-load {args.ref_load} has other tensor "
                "shapes than the policy, so it cannot copy the policy's weights"
            )

    @property
    def follows(self) -> bool:
        """Returns whether it copies the policy's weights at intervals."""
        return self.interval is not None

    def is_always(self, folder: str) -> bool:
        """Returns whether its weights never differ from the model in `folder`."""
        return not self.follows and self.folder == Path(folder).resolve()

    def log_probs(
        self, micro_batches: Sequence[MicroBatch], samples: Sequence[Sample], device: torch.device
    ) -> dict[int, list[float]]:
        """Returns log-probs of the trained tokens, by sample position."""
        with self.policy.without_adapters() if self.model is self.policy else nullcontext():
            return trained_log_probs(self.model, micro_batches, samples, device, merge=self.merge)

    def follow(self, rollout_id: int) -> bool:
        """Copies the policy's weights if rollout `rollout_id` ends an interval. Returns whether it did."""
        self.followed = self.interval is not None and (rollout_id + 1) % self.interval == 0
        if self.followed:
            self.model.take_over(self.policy)
        return self.followed

    def follow_again(self) -> None:
        """Repeats the copy of the last `follow`, if the policy's weights changed after it."""
        if self.followed:
            self.model.take_over(self.policy)
