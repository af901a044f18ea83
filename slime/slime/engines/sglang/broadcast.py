"""Weights by broadcast: a process on the GPU of trainer rank 0 sends a version's tensors to an engine.

Each update of an engine has its own group: rank 0 and the GPUs of that engine. The group is created before
requests are paused, and closed afterwards. Engines that restart or join thus need no special case, and a
failing engine does not affect others. Tensors that cannot be broadcast are read from disk, if the engine's
machine can access the folder.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from slime.engines.protocol import EngineControlError, HttpCall
from slime.engines.sglang.buckets import Bucket, plan_buckets
from slime.engines.sglang.group_calls import begin, engine_ranks, join_order, receive_order, relabel
from slime.engines.sglang.sender import Meeting
from slime.engines.sglang.transport import LOADING, Disk, HalfLoaded, waiting
from slime.errors import EngineError

logger = logging.getLogger(__name__)
T = TypeVar("T")

RELEASE_SECONDS = 20.0
"""Maximum time in seconds for an engine to notice that its rank 0 has exited."""


class SenderHandle(Protocol):
    """`slime.engines.sglang.sender.Sender` in another process. `turn`: lock to hold while using it."""

    turn: threading.Lock

    def meet(self, engine_host: str, timeout: float) -> Future[Meeting]: ...

    def join(self, name: str, world_size: int, backend: str, timeout: float) -> Future[None]: ...

    def send(self, bucket: Bucket) -> Future[None]: ...

    def leave(self) -> Future[None]: ...

    def kill(self) -> None:
        """Kills the process with its connections; the next call starts another."""


class Stuck(HalfLoaded):
    """The engine hangs in a group whose sender has exited."""


class Broadcast:
    """The transport of one engine.

    Args:
        url: URL of the engine.
        sender: shared by all engines; one at a time receives weights, while the others serve.
        bucket_bytes: maximum size of a bucket, which both sides hold in addition to the weights.
        timeout: seconds for the whole broadcast to this engine.
        folder_of_version: returns the folder of a version's artifact, whether it exists or not.
        on_stuck: called when the engine hangs and must be killed.
        over_gloo: use gloo between GPUs too, if NCCL cannot connect them.
    """

    how = "broadcast"

    def __init__(
        self,
        url: str,
        sender: SenderHandle,
        bucket_bytes: int,
        timeout: float,
        folder_of_version: Callable[[int], Path],
        on_stuck: Callable[[], None] = lambda: None,
        over_gloo: bool = False,
    ) -> None:
        self.url, self.sender = url, sender
        self.bucket_bytes, self.timeout = bucket_bytes, timeout
        self.folder_of_version, self.on_stuck = folder_of_version, on_stuck
        self.over_gloo = over_gloo
        self.sent: dict[str, str] = {}  # label sent to the engine -> folder
        self.deadline = 0.0

    def load(self, call: HttpCall, path: str, version: int, held: bool) -> None:
        try:
            self.broadcast(call, path, version, held)
        except Stuck:
            self.on_stuck()
            raise
        except EngineError as error:
            self.read_instead(call, path, version, held, error)
        else:
            self.sent = {str(version): path}

    def read_instead(self, call: HttpCall, path: str, version: int, held: bool, reason: EngineError) -> None:
        """Lets the engine read the folder itself, if its machine can access it."""
        half = isinstance(reason, HalfLoaded)
        logger.warning(
            "%s: version %d was not %s, the engine reads it from disk: %s",
            self.url,
            version,
            self.how,
            reason,
        )
        try:
            Disk().load(call, path, version, held or half)
        except EngineControlError as error:
            both = f"version {version} was not {self.how} ({reason}), nor read from disk ({error})"
            if half:
                raise HalfLoaded(f"{both}: requests to the engine wait until an update succeeds") from error
            raise EngineControlError(both, error.status) from error
        self.sent = {str(version): path}
        if half and not held:
            call("POST", "/continue_generation", {})

    def folder_of(self, label: str, named: str) -> str:
        """Returns the folder of a version; a broadcast does not change the folder that an engine reports."""
        if label in self.sent:
            return self.sent[label]
        if label.isdigit() and int(label) > 0 and (own := self.folder_of_version(int(label))).is_dir():
            return str(own)
        return named

    def broadcast(self, call: HttpCall, path: str, version: int, held: bool) -> None:
        """Broadcasts a version.

        Raises:
            EngineError: the engine still serves the old version.
            HalfLoaded: the engine has neither version, and is paused.
        """
        began = time.monotonic()
        buckets = plan_buckets(path, self.bucket_bytes)
        with self.sender.turn:
            self.deadline = time.monotonic() + self.timeout
            with self.group(call) as name:
                self.get_ready(buckets)
                joined = time.monotonic()
                with waiting(call, held):
                    self.transfer(call, name, buckets, version)
        size = sum(bucket.size for bucket in buckets) / 2**20
        logger.info(
            "%s received version %d: %.0f MiB in %d buckets in %.2f s; its requests waited %.2f s",
            self.url,
            version,
            size,
            len(buckets),
            time.monotonic() - began,
            time.monotonic() - joined,
        )

    @contextmanager
    def group(self, call: HttpCall) -> Iterator[str]:
        """Opens a group of rank 0 and the engine's ranks; yields its name."""
        ranks, device = engine_ranks(call)
        meeting = self.result(self.sender.meet(urlsplit(self.url).hostname or "", self.left()))
        backend = "nccl" if device == meeting.device == "cuda" and not self.over_gloo else "gloo"
        name = f"weights-{uuid.uuid4().hex[:12]}"
        order = join_order(meeting, ranks + 1, name, backend)
        self.together(
            lambda: call("POST", "/init_weights_update_group", order),
            self.sender.join(name, ranks + 1, backend, self.left()),
        )
        leave = {"group_name": name}
        try:
            yield name
        except Stuck:
            raise
        except EngineError:
            self.sender.kill()  # so that no later group has to wait for this one
            with suppress(EngineControlError):
                call("POST", "/destroy_weights_update_group", leave)
            raise
        self.deadline = time.monotonic() + RELEASE_SECONDS
        with suppress(EngineError):  # the weights have arrived, even if closing the group fails
            self.together(lambda: call("POST", "/destroy_weights_update_group", leave), self.sender.leave())

    def transfer(self, call: HttpCall, name: str, buckets: Sequence[Bucket], version: int) -> None:
        """Sends all buckets in one session of the engine. Raises HalfLoaded if the engine's state is unknown."""
        try:
            relabel(call, f"{LOADING} {version}")
            begin(call)
            self.move(call, name, buckets)
            call("POST", "/end_weight_update", {})
            relabel(call, str(version))
        except Stuck:
            raise
        except EngineError as error:
            with suppress(EngineControlError):
                call("POST", "/end_weight_update", {})
            raise HalfLoaded(str(error), getattr(error, "status", None)) from error

    def get_ready(self, buckets: Sequence[Bucket]) -> None:
        """Does all preparation that is possible before requests are paused. Raises EngineError."""

    def move(self, call: HttpCall, name: str, buckets: Sequence[Bucket]) -> None:
        """Sends the buckets to the engine."""
        for number, bucket in enumerate(buckets):
            order = receive_order(bucket, name, flush=number == len(buckets) - 1)
            self.together(
                lambda order=order: call("POST", "/update_weights_from_distributed", order),  # type: ignore[misc]
                self.sender.send(bucket),
            )

    def together(self, ask: Callable[[], Any], sent: Future[None]) -> None:
        """Returns when both sides are done. After a failure or the time-out, kills the sender, which frees
        the other side.

        Raises:
            EngineControlError: the first failure.
            Stuck: the engine does not notice that the sender has exited.
        """
        pool = ThreadPoolExecutor(1)
        asked = pool.submit(ask)
        pool.shutdown(wait=False)
        ended, open_ = wait([asked, sent], timeout=self.left(), return_when=FIRST_EXCEPTION)
        failed = [side for side in ended if side.exception() is not None]
        if not open_ and not failed:
            return
        self.sender.kill()
        if not wait([asked], timeout=RELEASE_SECONDS).done:
            raise Stuck(f"the engine {self.url} hangs in a cancelled broadcast and must be restarted")
        if not failed:
            raise EngineControlError(
                f"the broadcast to {self.url} did not finish within {self.timeout:g} s "
                "(--weight-update-timeout)"
            )
        gone = isinstance(error := asked.exception(), EngineControlError) and error.status is None
        first = (asked if gone or asked in failed else sent).exception()
        raise as_engine_error(first) from first

    def result(self, answer: Future[T]) -> T:
        try:
            return answer.result(self.left())
        except Exception as error:  # it exited, could not start, or cannot reach the engine
            self.sender.kill()
            raise as_engine_error(error) from error

    def left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())


def as_engine_error(error: BaseException | None) -> EngineError:
    """Returns an engine's own error unchanged; converts an error of the sending process to an update error."""
    error = getattr(error, "cause", None) or error  # Ray wraps it
    if isinstance(error, EngineError):
        return error
    reason = (str(error).strip() or f"{type(error).__name__} without a message").splitlines()[-1]
    return EngineControlError(f"the process that sends weights failed: {reason}")
