"""The policy and its base as the training core sees them; both compute at the service."""

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
from slime.rented.trainer.retry import patiently
from slime.training.core.packing import PackedBatch

Ids = tuple[int, ...]


class RentedModel:
    """An adapter at a service, over a base model that stays.

    Args:
        vocabulary: tokens that the model knows.
    """

    def __init__(self, service: Service, vocabulary: int, meter: Meter) -> None:
        self.service, self.vocabulary, self.meter = service, vocabulary, meter
        self.trained: Trained | None = None
        self._base: Sampler | None = None
        self._on_base = False
        self._asked: dict[Ids, Future[list[float]]] = {}

    def eval(self) -> None:
        """A service decides on dropout by itself."""

    def train(self) -> None:
        """As `eval`."""

    def requires_grad_(self, requires_grad: bool) -> None:
        """Does nothing, since only the adapter is trained."""

    def shapes(self) -> dict[str, torch.Size]:
        """None of the weights are here."""
        return {}

    def take_over(self, policy: Any) -> None:
        raise NotImplementedError("a reference that follows the policy is refused before training begins")

    @property
    def adapter(self) -> Trained:
        assert self.trained is not None, "`load` comes first"
        return self.trained

    @contextmanager
    def without_adapters(self) -> Iterator[None]:
        """Inside, the base model answers."""
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
        asked = self._asked.get(tuple(ids))
        if asked is not None:
            try:
                return asked.result()
            except ServiceRefuses:
                raise
            except Exception:  # away just then: it is asked again, with patience
                self._asked.pop(tuple(ids), None)
        return patiently(lambda: self.ask_base(ids).result(), self.forget_base)

    def ask_base(self, ids: Sequence[int]) -> Future[list[float]]:
        """The same, under way."""
        if self._base is None:
            self._base = self.service.sampler(None)
        self.meter.add(prefill=len(ids))
        return self._base.log_probs(ids)

    def forget_base(self) -> None:
        """The next question connects again."""
        self._base = None

    def ask_ahead(self, sequences: Sequence[Sequence[int]]) -> None:
        """Puts all questions to the base model at once; `of_base` then finds their answers."""
        for ids in dict.fromkeys(tuple(ids) for ids in sequences):
            self._asked[ids] = self.ask_base(ids)

    def forget_answers(self) -> None:
        self._asked.clear()


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
    """Returns the sequence of a pack of one sample."""
    assert len(packed.lengths) == 1, "the service gets one sequence a pack"
    ids: list[int] = packed.input_ids[0].tolist()
    return ids


def at_targets(packed: PackedBatch, log_probs: list[float]) -> Tensor:
    """Returns those of the pack's targets [T] among the log-probs [N - 1] of a whole sequence."""
    return torch.tensor(log_probs, dtype=torch.float32)[packed.logit_positions]


def over_sequence(packed: PackedBatch, values: Tensor) -> list[float]:
    """Values at the targets [T] as [N - 1] over the sequence, 0 if nothing is trained."""
    wide = torch.zeros(packed.input_ids.shape[1] - 1)
    wide[packed.logit_positions] = values.float()
    as_list: list[float] = wide.tolist()
    return as_list
