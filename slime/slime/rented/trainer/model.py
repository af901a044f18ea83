"""The policy and its base model for the training core; the service computes both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from claw_base.run_folder.usage import Meter
from slime.errors import TrainError
from slime.rented.service import Sampler, Service, ServiceRefuses, Trained, TrainingSequence
from slime.rented.trainer.retry import with_retries
from slime.training.core.packing import PackedBatch

Ids = tuple[int, ...]


class RentedModel:
    """An adapter at a service, over a frozen base model.

    Args:
        vocabulary: size of the model's vocabulary.
    """

    def __init__(self, service: Service, vocabulary: int, meter: Meter) -> None:
        self.service, self.vocabulary, self.meter = service, vocabulary, meter
        self.trained: Trained | None = None
        self._base: Sampler | None = None
        self._on_base = False
        self._pending: dict[Ids, Future[list[float]]] = {}

    def eval(self) -> None:
        """Does nothing: the service controls dropout."""

    def train(self) -> None:
        """Does nothing, like `eval`."""

    def requires_grad_(self, requires_grad: bool) -> None:
        """Does nothing: only the adapter is trained."""

    def shapes(self) -> dict[str, torch.Size]:
        """Returns {}: no weights are local."""
        return {}

    def take_over(self, policy: Any) -> None:
        raise NotImplementedError(
            "--ref-update-interval is not supported with a rented model; the check of arguments should have rejected it"
        )

    @property
    def adapter(self) -> Trained:
        assert self.trained is not None, "call `load` first"
        return self.trained

    @contextmanager
    def without_adapters(self) -> Iterator[None]:
        """Makes the base model answer inside the context."""
        self._on_base = True
        try:
            yield
        finally:
            self._on_base = False

    def distribution(self, packed: PackedBatch) -> OwnTokens:
        """Returns the distribution of the pack's targets, without gradients. Raises ServiceRefuses."""
        if packed.is_filler:
            return OwnTokens(packed.targets, torch.zeros(1))
        ids = ids_of(packed)
        log_probs = self.of_base(ids) if self._on_base else self.forward([ids])[0]
        return OwnTokens(packed.targets, at_targets(packed, log_probs))

    def forward(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Returns log-probs [N - 1] of whole sequences under the policy."""
        wrapped = [TrainingSequence(ids) for ids in sequences]
        log_probs = self.adapter.forward(wrapped).result()
        self.meter.add(prefill=sum(map(len, sequences)))
        return log_probs

    def of_base(self, ids: Sequence[int]) -> list[float]:
        """Returns log-probs [N - 1] under the base model. Raises ServiceRefuses."""
        pending = self._pending.get(tuple(ids))
        if pending is not None:
            try:
                return pending.result()
            except ServiceRefuses:
                raise
            except Exception:  # the service was unavailable; the request is retried below
                self._pending.pop(tuple(ids), None)
        return with_retries(lambda: self.ask_base(ids).result(), self.forget_base)

    def ask_base(self, ids: Sequence[int]) -> Future[list[float]]:
        """Starts the request of `of_base`."""
        if self._base is None:
            self._base = self.service.sampler(None)
        self.meter.add(prefill=len(ids))
        return self._base.log_probs(ids)

    def forget_base(self) -> None:
        """Makes the next request to the base model connect again."""
        self._base = None

    def request_base(self, sequences: Sequence[Sequence[int]]) -> None:
        """Starts all requests to the base model at once; `of_base` then returns their results."""
        for ids in dict.fromkeys(tuple(ids) for ids in sequences):
            self._pending[ids] = self.ask_base(ids)

    def forget_answers(self) -> None:
        self._pending.clear()


NOT_AVAILABLE = "a service returns only the log-probs of sampled tokens, but this loss needs {what}"


class OwnTokens:
    """Distribution of a pack with one sample, known only at its targets [T].

    Args:
        log_probs: of the targets [T]; a leaf that collects gradients, or a constant.
    """

    def __init__(self, targets: Tensor, log_probs: Tensor) -> None:
        self.targets, self.values = targets, log_probs

    def log_probs(self, ids: Tensor) -> Tensor:
        if ids is not self.targets and not torch.equal(ids, self.targets):
            raise TrainError(NOT_AVAILABLE.format(what="log-probs of other tokens"))
        return self.values

    def logsumexp(self) -> Tensor:
        raise TrainError(NOT_AVAILABLE.format(what="the normaliser"))

    def entropy(self) -> Tensor:
        raise TrainError(NOT_AVAILABLE.format(what="the entropy"))

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        raise TrainError(NOT_AVAILABLE.format(what="the most likely ids"))

    def guided(self, plain: OwnTokens, strength: float) -> OwnTokens:
        raise TrainError(NOT_AVAILABLE.format(what="the whole distribution of the teacher"))


def ids_of(packed: PackedBatch) -> list[int]:
    """Returns the sequence of a pack with one sample."""
    assert len(packed.lengths) == 1, "the service gets one sequence a pack"
    ids: list[int] = packed.input_ids[0].tolist()
    return ids


def at_targets(packed: PackedBatch, log_probs: list[float]) -> Tensor:
    """Selects the values at the pack's targets [T] from the log-probs [N - 1] of a whole sequence."""
    return torch.tensor(log_probs, dtype=torch.float32)[packed.logit_positions]


def over_sequence(packed: PackedBatch, values: Tensor) -> list[float]:
    """Spreads values at the targets [T] over the sequence [N - 1], with 0 elsewhere."""
    wide = torch.zeros(packed.input_ids.shape[1] - 1)
    wide[packed.logit_positions] = values.float()
    as_list: list[float] = wide.tolist()
    return as_list
