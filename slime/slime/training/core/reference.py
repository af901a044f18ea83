"""The model that the policy is compared with by KL: frozen, or following the policy every so many rollouts."""

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
    """The reference of one rank; every rank makes the same calls.

    Frozen, it is the base of the policy's adapters if that is the same model, so it takes no memory. One that
    follows the policy (--ref-update-interval) is part of checkpoints.

    Args:
        policy: the model that is trained.
        first: folder of the weights that the policy started from.
        load: the model in a folder, spread over the ranks as the policy is.

    Raises:
        ConfigError: the reference shall follow a policy of another shape.

    Attributes:
        followed: it took over the policy's weights after the last rollout.
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
        self.model.requires_grad_(self.follows)  # checkpoints hold what could be trained
        if self.follows and self.model.shapes() != policy.shapes():
            raise ConfigError(
                f"--ref-update-interval: the model in {args.ref_load} has another shape than the policy and cannot "
                "take over its weights"
            )

    @property
    def follows(self) -> bool:
        """Returns whether it copies the policy's weights from time to time."""
        return self.interval is not None

    def is_always(self, folder: str) -> bool:
        """Returns whether it is the model in `folder` and stays so."""
        return not self.follows and self.folder == Path(folder).resolve()

    def log_probs(
        self, micro_batches: Sequence[MicroBatch], samples: Sequence[Sample], device: torch.device
    ) -> dict[int, list[float]]:
        """Returns log-probs of the trained tokens, by position of the sample."""
        with self.policy.without_adapters() if self.model is self.policy else nullcontext():
            return trained_log_probs(self.model, micro_batches, samples, device, merge=self.merge)

    def follow(self, rollout_id: int) -> bool:
        """Copies the policy's weights if `rollout_id`, just trained, ends an interval. Returns whether it did."""
        self.followed = self.interval is not None and (rollout_id + 1) % self.interval == 0
        if self.followed:
            self.model.take_over(self.policy)
        return self.followed

    def follow_again(self) -> None:
        """Copies the policy's weights that changed after the rollout for which `follow` was last called."""
        if self.followed:
            self.model.take_over(self.policy)
