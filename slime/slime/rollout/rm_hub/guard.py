"""Protects a rollout from reward functions: time limit, threads, and a check of the value.

A reward function that times out, raises or returns no finite value causes a `RewardError` that names its
sample; the rollout continues without the sample. After too many consecutive failures the run ends, because
the function is broken.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from slime.errors import ConfigError, RewardError
from slime.rollout.metrics import reward_failures
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags.reward import RewardArguments
    from slime.flags.sides import GenerationSide

LONGEST_CAUSE = 300
"""Maximum characters of a function's message in an error."""


async def guarded(
    args: GenerationSide, name: str, samples: list[Sample], call: Callable[[], Awaitable[Any]]
) -> Any:
    """Returns the result of `call` within --rollout-reward-timeout seconds.

    Raises:
        RewardError: the call failed or timed out; the message names the reward and the samples.
        ConfigError: there were too many consecutive failures, or `call` raised it.
    """
    where = f"{name} for {_named(samples)}"
    limit = args.rollout_reward_timeout
    try:
        return await asyncio.wait_for(call(), limit or None)
    except ConfigError:
        raise
    except TimeoutError:
        _fail(args, "timeout", f"{where}: no result within {limit:g} s")
    except RewardError as error:
        _fail(args, "error", f"{where}: {error}", error)
    except Exception as error:  # exceptions of users' functions affect only their samples, not the run
        cause = f"{type(error).__name__}: {error}"[:LONGEST_CAUSE]
        _fail(args, "error", f"{where} raised {cause}", error)


def checked(args: RewardArguments, name: str, sample: Sample, value: Any) -> float | dict[str, Any]:
    """Returns the reward as a float, or as a dictionary whose numbers are finite.

    Scalars of numpy and torch are accepted.

    Raises:
        RewardError: it is neither.
    """
    value = _plain(value)
    numbers = value.values() if isinstance(value, Mapping) else [value]
    for number in numbers:
        number = _plain(number)
        wrong = isinstance(number, float | int) and not math.isfinite(number)
        if wrong or (not isinstance(value, Mapping) and not isinstance(number, float | int)):
            _fail(args, "value", f"{name} for {_named([sample])} returned {value!r}, not a finite number")
    if isinstance(value, Mapping):
        if not value:
            _fail(args, "value", f"{name} for {_named([sample])} returned a dictionary without a reward")
        reward_failures.good()
        return {str(key): _plain(one) for key, one in value.items()}
    reward_failures.good()
    return float(value)


def _plain(value: object) -> Any:
    """Returns an array or tensor of one element as a number; other values unchanged."""
    if not hasattr(value, "item") or not hasattr(value, "size"):
        return value
    count = value.numel() if hasattr(value, "numel") else value.size
    return value.item() if count == 1 else value


def _fail(args: RewardArguments, kind: str, message: str, cause: BaseException | None = None) -> None:
    error = RewardError(message)
    reward_failures.bad(kind, error, args.rm_max_failures)
    raise error from cause


def _named(samples: list[Sample]) -> str:
    names = ", ".join(repr(sample.index) for sample in samples[:8])
    return f"sample{'s' if len(samples) > 1 else ''} {names}{', ...' if len(samples) > 8 else ''}"


class UserThreads:
    """Runs users' functions outside the rollout's event loop, so that blocking ones cannot freeze all
    requests.

    Blocking functions run in a thread each, async ones in a second loop. At most `limit` run concurrently;
    one that hangs keeps its slot. The threads exit with the process.
    """

    def __init__(self, limit: int) -> None:
        self.places = threading.Semaphore(limit)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.lock = threading.Lock()

    async def run(self, function: Callable[..., object], *arguments: object, **keywords: object) -> Any:
        """Calls the function and returns its result, awaited if necessary."""
        if inspect.iscoroutinefunction(function):
            return await self._in_loop(function(*arguments, **keywords))
        result = await self._in_thread(lambda: function(*arguments, **keywords))
        return await self._in_loop(result) if inspect.isawaitable(result) else result

    async def _in_loop(self, awaitable: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await awaitable

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(wait(), self._second_loop()))

    async def _in_thread(self, call: Callable[[], object]) -> Any:
        here = asyncio.get_running_loop()
        result: asyncio.Future[Any] = here.create_future()

        def settle(value: object, error: BaseException | None) -> None:
            if result.done():
                return
            result.set_exception(error) if error is not None else result.set_result(value)

        def work() -> None:
            with self.places:
                value, error = None, None
                try:
                    value = call() if not result.cancelled() else None
                except Exception as raised:
                    error = raised
            if not here.is_closed():
                here.call_soon_threadsafe(settle, value, error)

        threading.Thread(target=work, name="reward", daemon=True).start()
        return await result

    def _second_loop(self) -> asyncio.AbstractEventLoop:
        with self.lock:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                threading.Thread(target=self.loop.run_forever, name="reward loop", daemon=True).start()
            return self.loop


_lock = threading.Lock()
_threads: dict[int, UserThreads] = {}


def user_threads(limit: int) -> UserThreads:
    """Returns this process's threads for that limit."""
    with _lock:
        return _threads.setdefault(limit, UserThreads(limit))
