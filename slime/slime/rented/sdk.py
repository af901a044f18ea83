"""Code shared by clients of service SDKs: supported versions, errors, coroutines, and training clients with a common
interface.

That interface (`ShapedTrained`) has `forward`, `forward_backward`, `optim_step`, `save_state` and
`save_weights_for_sampler`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from slime.errors import ConfigError
from slime.rented.service import AdamStep, ServiceAway, ServiceForgot, ServiceRefuses, TrainingSequence


def check_version(name: str, package: str, tested: tuple[int, int], install: str) -> None:
    """Raises ConfigError if the SDK is missing or of an untested version.

    Args:
        tested: tested major and minor version.
        install: the command that installs it.
    """
    try:
        installed = version(package)
    except PackageNotFoundError:
        raise ConfigError(f"{name} is not installed: {install}") from None
    if tuple(int(part) for part in installed.split(".")[:2]) != tested:
        raise ConfigError(
            f"{package} {installed} is installed, but only {tested[0]}.{tested[1]}.x is tested: {install}"
        )


class Loop:
    """An event loop in its own daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()

    def submit(self, pending: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(pending, self._loop)


Converted = TypeVar("Converted")
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class ShapedPending(Generic[Converted]):
    """A future of the SDK, with the function that converts its result."""

    pending: Any
    make: Callable[[Any], Converted]

    def result(self) -> Converted:
        with failures_translated():
            return self.make(self.pending.result())


class ShapedTrained:
    """One LoRA adapter, trained through an SDK's training client.

    Args:
        client: an SDK's training client.
        types: the SDK's module of types.
        reduction: how the server reduces a loss over predictions: some add up, others take the mean of each sequence
            and then of all sequences, which is undone here.
    """

    def __init__(self, client: Any, types: Any, reduction: Reduction) -> None:
        self.client, self.types, self.reduction = client, types, reduction

    def forward(self, sequences: Sequence[TrainingSequence]) -> ShapedPending[list[list[float]]]:
        data = [self.datum(one.ids, weights=[0.0] * (len(one.ids) - 1)) for one in sequences]
        with failures_translated():
            return ShapedPending(self.client.forward(data, "cross_entropy"), log_probs_of)

    def policy_gradient(
        self, loss: str, clip: tuple[float, float], sequences: Sequence[TrainingSequence]
    ) -> ShapedPending[list[list[float]]]:
        data = []
        for one in sequences:
            scale = len(sequences) * (len(one.ids) - 1) if self.reduction == "mean" else 1
            advantages = [scale * value for value in one.advantages]
            data.append(self.datum(one.ids, logprobs=one.log_probs, advantages=advantages))
        config = {"clip_low_threshold": clip[0], "clip_high_threshold": clip[1]}
        with failures_translated():
            pending = self.client.forward_backward(
                data, loss, None if loss == "importance_sampling" else config
            )
            return ShapedPending(pending, log_probs_of)

    def step(self, adam: AdamStep) -> ShapedPending[dict[str, float]]:
        params = self.types.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.beta1,
            beta2=adam.beta2,
            eps=adam.eps,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.clip_norm,
        )
        with failures_translated():
            return ShapedPending(self.client.optim_step(params), lambda answer: dict(answer.metrics or {}))

    def save_sampler(self, name: str) -> ShapedPending[str]:
        with failures_translated():
            return ShapedPending(self.client.save_weights_for_sampler(name), lambda answer: str(answer.path))

    def save_state(self, name: str) -> ShapedPending[str]:
        with failures_translated():
            return ShapedPending(self.client.save_state(name), lambda answer: str(answer.path))

    def datum(self, ids: Sequence[int], **inputs: Sequence[float]) -> Any:
        """Returns one training sequence in the SDK's type: all ids but the last [N - 1], their targets, and one
        number a prediction for each name."""
        tensor = self.types.TensorData.from_numpy
        tensors = {name: tensor(np.asarray(values, dtype=np.float32)) for name, values in inputs.items()}
        tensors["target_tokens"] = tensor(np.asarray(ids[1:], dtype=np.int64))
        return self.types.Datum(
            model_input=self.types.ModelInput.from_ints(list(ids[:-1])), loss_fn_inputs=tensors
        )


def log_probs_of(output: Any) -> list[list[float]]:
    return [[float(value) for value in one["logprobs"].data] for one in output.loss_fn_outputs]


Result = TypeVar("Result")


USER = "user"
"""The SDKs' error category for invalid requests."""
REFUSED_KEY = (401, 403)
MAY_PASS = (401, 402, 403, 408, 409, 425, 429)
"""HTTP status below 500 after which a retry can succeed: with a new key, a payment, or later."""


def translated(error: BaseException) -> ServiceAway | ServiceRefuses:
    """Converts an SDK error to ServiceAway or ServiceRefuses, with a message of one line, by the HTTP status or the
    category of the error or of its causes."""
    status, category = None, None
    cause: BaseException | None = error
    while cause is not None and status is None and category is None:
        status, category = status_of(cause), getattr(cause, "category", None)
        cause = cause.__cause__
    line = (str(error).strip() or type(error).__name__).splitlines()[0][:400]
    if "not loaded" in line:
        return ServiceForgot(line)
    by_content = status is not None and 400 <= status < 500 and status not in MAY_PASS
    by_user = by_content or str(getattr(category, "value", category)).lower() == USER
    if by_user and "session" not in line.lower():
        return ServiceRefuses(line)
    return ServiceAway(line)


def status_of(error: BaseException) -> int | None:
    """Returns the HTTP status of an error: its own, or that of its response."""
    status = getattr(error, "status_code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    return status if isinstance(status, int) else None


def status_in_causes(error: BaseException | None) -> int | None:
    """Returns the HTTP status of an error or of its causes."""
    while error is not None:
        if (status := status_of(error)) is not None:
            return status
        error = error.__cause__
    return None


@contextmanager
def failures_translated() -> Iterator[None]:
    """Turns every exception of the SDK inside into ServiceAway or ServiceRefuses."""
    try:
        yield
    except (ServiceAway, ServiceRefuses):
        raise
    except Exception as error:  # the SDK raises ValueError, TimeoutError and exceptions of many libraries
        raise translated(error) from error


def then(source: Future[Result], make: Callable[[Result], Converted]) -> Future[Converted]:
    """Returns a future of `make(result)`; errors are translated."""
    result: Future[Converted] = Future()

    def done(ended: Future[Result]) -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            result.set_result(make(ended.result()))
        except BaseException as error:
            result.set_exception(translated(error))

    source.add_done_callback(done)
    return result
