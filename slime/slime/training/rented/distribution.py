"""What a service says of a pack: log-probs of the sequence's own ids, at temperature 1, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor

from slime.errors import TrainError
from slime.training.core.packing import PackedBatch

LACKING = "a service gives log-probs of the sampled tokens alone; this loss needs {what}"


class OwnTokens:
    """The distribution of a pack of one sample, known at its targets [T].

    Args:
        log_probs: of the targets [T]; a leaf that collects gradients, or a constant.
    """

    def __init__(self, targets: Tensor, log_probs: Tensor) -> None:
        self.targets, self.values = targets, log_probs

    def log_probs(self, ids: Tensor) -> Tensor:
        if ids is not self.targets and not torch.equal(ids, self.targets):
            raise TrainError(LACKING.format(what="those of other tokens"))
        return self.values

    def logsumexp(self) -> Tensor:
        raise TrainError(LACKING.format(what="the normaliser"))

    def entropy(self) -> Tensor:
        raise TrainError(LACKING.format(what="the entropy"))

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        raise TrainError(LACKING.format(what="the likely ids"))

    def guided(self, plain: OwnTokens, strength: float) -> OwnTokens:
        raise TrainError(LACKING.format(what="the whole distribution of its teacher"))


def ids_of(packed: PackedBatch) -> list[int]:
    """The sequence of a pack of one sample."""
    assert len(packed.lengths) == 1, "the service gets one sequence a pack"
    ids: list[int] = packed.input_ids[0].tolist()
    return ids


def at_targets(packed: PackedBatch, log_probs: list[float]) -> Tensor:
    """Of log-probs [N - 1] of a whole sequence those of the pack's targets [T]."""
    return torch.tensor(log_probs, dtype=torch.float32)[packed.logit_positions]


def over_sequence(packed: PackedBatch, values: Tensor) -> list[float]:
    """Values at the targets [T] as [N - 1] over the sequence, 0 where nothing is trained."""
    wide = torch.zeros(packed.input_ids.shape[1] - 1)
    wide[packed.logit_positions] = values.float()
    found: list[float] = wide.tolist()
    return found
