"""The interface of a service that rents out sampling and gradients. Token ids in, token ids out; no torch.

A plug-in (`--rented-service module:Class`) implements `Service`; engine and trainer use nothing else of it.
Log-probs are natural, of the whole distribution at temperature 1: that is the one which services report.
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
"""Policy losses that a service computes by itself."""


class ServiceAway(EngineError):
    """The service is away, overloaded, or has refused the key: worth another try."""


class ServiceForgot(ServiceAway):
    """The service answers, and no longer has what it is asked with: weights that it lost when it was started again."""


class ServiceRefuses(EngineError):
    """The service refuses a request by its content: another try would not help."""


@dataclass(frozen=True)
class ServiceSettings:
    """The rented model, and its service.

    Attributes:
        model: the base model's name at the service.
        url: base URL of the service; "": the service's own default.
        rank: of the adapters that are trained. seed: of their first values.
    """

    model: str
    url: str = ""
    rank: int = 32
    seed: int = 0


@dataclass(frozen=True)
class SamplingRequest:
    """One answer to sample: `prompt` ids, at most `most` new ones, which end after one of `stop_ids`."""

    prompt: Sequence[int]
    most: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_ids: tuple[int, ...] = ()
    seed: int | None = None


FIRST_ANSWER = SamplingRequest(prompt=(0,), most=1)
"""Asked of a sampler to see whether it answers: some load the weights only now."""


@dataclass(frozen=True)
class Sampled:
    """Sampled ids [t], the stop id included, and their log-probs [t]; `ended`: by a stop id, not by `most`."""

    ids: list[int]
    log_probs: list[float]
    ended: bool


@dataclass(frozen=True)
class TrainingSequence:
    """A whole sequence of ids [N], and for each of its N - 1 predictions what a loss compares and weighs it with."""

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
    """Something that the service works on. `result` waits; it raises ServiceAway or ServiceRefuses."""

    def result(self) -> T_co: ...


class Sampler(Protocol):
    """One set of weights that answers."""

    def sample(self, request: SamplingRequest) -> Future[Sampled]: ...

    def log_probs(self, ids: Sequence[int]) -> Future[list[float]]:
        """Returns the log-probs of ids 1 to N - 1 of a sequence [N], each given those before it: [N - 1]."""
        ...


class Trained(Protocol):
    """The adapter that is trained, one request after the other."""

    def forward(self, sequences: Sequence[TrainingSequence]) -> Pending[list[list[float]]]:
        """Returns log-probs [N - 1] of every sequence under the present weights."""
        ...

    def policy_gradient(
        self, loss: str, clip: tuple[float, float], sequences: Sequence[TrainingSequence]
    ) -> Pending[list[list[float]]]:
        """Adds the gradient of the sum over predictions of one of LOSSES, each times its advantage; no mean is taken of
        anything. With r = exp(present - given log-prob):

            importance_sampling   -r A, whose gradient is -A where the given log-probs are the present ones
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
        """Moves the weights, forgets the gradient; returns what the service measured."""
        ...

    def save_sampler(self, name: str) -> Pending[str]:
        """Keeps the weights to sample from; returns the address that `Service.sampler` takes."""
        ...

    def save_state(self, name: str) -> Pending[str]:
        """Keeps weights and optimizer; returns the address that `Service.resume` takes."""
        ...


class Service(Protocol):
    """A client of the service. All calls raise ServiceAway or ServiceRefuses.

    Attributes:
        exclusive: only the weights that were loaded last answer, whatever sampler is asked; otherwise every address
            can be sampled from at any time.
    """

    exclusive: bool

    def __init__(self, settings: ServiceSettings) -> None:
        """Looks at what can be known without the service. Raises ConfigError."""

    def check(self) -> None:
        """Asks the service whether it has the model and takes the key. Raises ConfigError if it does not."""
        ...

    def sampler(self, address: str | None) -> Sampler:
        """Returns a sampler of saved weights; None: of the base model."""
        ...

    def load(self, address: str | None) -> None:
        """Returns when an exclusive service answers with these weights; nothing is asked meanwhile."""
        ...

    def new(self) -> Trained:
        """Returns a new adapter."""
        ...

    def resume(self, address: str) -> Trained:
        """Returns an adapter and its optimizer as they were saved."""
        ...


def connect(path: str, settings: ServiceSettings) -> Service:
    """Returns the service behind --rented-service. Raises ConfigError."""
    if not path:
        raise ConfigError("no service to rent from: give --rented-service module:Class")
    service: Service = load_attr(path)(settings)
    return service
