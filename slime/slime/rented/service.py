"""The interface of a service that rents out sampling and gradients. It exchanges token ids and does not import torch.

A plug-in (`--rented-service module:Class`) implements `Service`; engine and trainer use only this interface.
Log-probs are natural logarithms over the whole vocabulary at temperature 1, because services report these.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar

from slime.errors import ConfigError, EngineError
from slime.plugins import load_attr

T_co = TypeVar("T_co", covariant=True)

LOSSES = ("ppo", "importance_sampling", "cispo")
"""Policy losses that a service can compute itself."""


class ServiceAway(EngineError):
    """The service is unreachable, overloaded, or rejected the key: a retry may succeed."""


class ServiceForgot(ServiceAway):
    """The service has lost the object of the request, such as weights after a restart."""


class ServiceRefuses(EngineError):
    """The service rejects the request's content: a retry would fail too."""


@dataclass(frozen=True)
class ServiceSettings:
    """The rented model and its service.

    Attributes:
        model: the base model's name at the service.
        url: base URL of the service; "": the service's own default.
        rank: LoRA rank of trained adapters.
        seed: random seed of their initial weights.
    """

    model: str
    url: str = ""
    rank: int = 32
    seed: int = 0


@dataclass(frozen=True)
class SamplingRequest:
    """Request for one answer: `prompt` ids, at most `most` new ids, ending after one of `stop_ids`."""

    prompt: Sequence[int]
    most: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_ids: tuple[int, ...] = ()
    seed: int | None = None


FIRST_ANSWER = SamplingRequest(prompt=(0,), most=1)
"""Request that verifies a sampler: some services load weights only when first used."""


@dataclass(frozen=True)
class Sampled:
    """Sampled ids [t], including the stop id, and their log-probs [t]; `ended`: by a stop id, not by `most`."""

    ids: list[int]
    log_probs: list[float]
    ended: bool


@dataclass(frozen=True)
class TrainingSequence:
    """A sequence of ids [N], with the loss inputs of each of its N - 1 predictions: old log-probs and
    advantages."""

    ids: Sequence[int]
    log_probs: Sequence[float] = ()
    advantages: Sequence[float] = ()


@dataclass(frozen=True)
class AdamStep:
    """One step of AdamW at the service. `clip_norm` 0: the gradient is not clipped."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip_norm: float


class Pending(Protocol[T_co]):
    """A pending result of the service. `result` waits; it raises ServiceAway or ServiceRefuses."""

    def result(self) -> T_co: ...


class Sampler(Protocol):
    """Samples from one set of weights."""

    def sample(self, request: SamplingRequest) -> Future[Sampled]: ...

    def log_probs(self, ids: Sequence[int]) -> Future[list[float]]:
        """Returns the log-probs [N - 1] of ids 1 to N - 1 of a sequence [N], each given the ids before it."""
        ...


class Trained(Protocol):
    """An adapter in training; requests are carried out in order."""

    def forward(self, sequences: Sequence[TrainingSequence]) -> Pending[list[list[float]]]:
        """Returns the log-probs [N - 1] of every sequence under the current weights."""
        ...

    def policy_gradient(
        self, loss: str, clip: tuple[float, float], sequences: Sequence[TrainingSequence]
    ) -> Pending[list[list[float]]]:
        """Accumulates the gradient of one of LOSSES, summed over predictions times advantages, without any averaging.
        With r = exp(present - given log-prob):

            importance_sampling   -r A, whose gradient is -A if given and present log-probs are equal
            ppo                   max(-r A, -clip(r) A)
            cispo                 -clip(r) A log-prob, without a gradient through clip(r)

        Args:
            clip: lower and upper bound of r.
            sequences: with `log_probs` and `advantages`.

        Returns:
            The log-probs [N - 1] under the present weights.
        """
        ...

    def step(self, adam: AdamStep) -> Pending[dict[str, float]]:
        """Updates the weights and clears the gradient; returns the metrics of the service."""
        ...

    def save_sampler(self, name: str) -> Pending[str]:
        """Saves the weights for sampling; returns the address for `Service.sampler`."""
        ...

    def save_state(self, name: str) -> Pending[str]:
        """Saves weights and optimizer; returns the address for `Service.resume`."""
        ...


class Service(Protocol):
    """A client of the service. All calls raise ServiceAway or ServiceRefuses.

    Attributes:
        exclusive: only the weights loaded last can be sampled; otherwise every saved address can be sampled at any
            time.
    """

    exclusive: bool

    def __init__(self, settings: ServiceSettings) -> None:
        """Checks settings without contacting the service. Raises ConfigError."""

    def check(self) -> None:
        """Checks that the service has the model and accepts the key. Raises ConfigError if it does not."""
        ...

    def sampler(self, address: str | None) -> Sampler:
        """Returns a sampler for the weights saved at `address`; None: for the base model."""
        ...

    def load(self, address: str | None) -> None:
        """Loads weights into an exclusive service; no requests may be sent meanwhile."""
        ...

    def new(self) -> Trained:
        """Returns a new, untrained adapter."""
        ...

    def resume(self, address: str) -> Trained:
        """Returns an adapter with the saved weights and optimizer state."""
        ...


def connect(path: str, settings: ServiceSettings) -> Service:
    """Returns the service given by --rented-service. Raises ConfigError."""
    if not path:
        raise ConfigError("no rented service is set: give --rented-service module:Class")
    service: Service = load_attr(path)(settings)
    return service
