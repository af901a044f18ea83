"""`remote_rm`: rewards from an HTTP server."""

from __future__ import annotations

import asyncio
import random
import time
import weakref
from typing import TYPE_CHECKING, Any

import httpx

from slime.errors import RewardError
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags.reward import RewardArguments
    from slime.flags.sides import GenerationSide

FIRST_PAUSE = 0.25  # seconds before the first retry; doubled each time, plus random jitter of up to the same
AGAIN = {408, 425, 429, 500, 502, 503, 504}

_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
    weakref.WeakKeyDictionary()
)


async def remote_reward(args: GenerationSide, sample: Sample) -> Any:
    """Sends {"prompt", "response", "label"} to --rm-url; the response is a number or an object of numbers.

    Connection errors and the statuses 408, 425, 429 and 5xx are retried, up to --rm-retries times and within
    --rollout-reward-timeout seconds in total.

    Raises:
        RewardError: there is no valid response.
    """
    assert args.rm_url is not None
    until = time.monotonic() + (args.rollout_reward_timeout or float("inf"))
    body = {"prompt": sample.prompt, "response": sample.response, "label": sample.label}
    for attempt in range(args.rm_retries + 1):
        try:
            left = until - time.monotonic()
            answer = await _client(args).post(args.rm_url, json=body, timeout=left if left < 1e9 else None)
            if answer.status_code not in AGAIN:
                return _reward(args, answer)
            trouble = f"status {answer.status_code}"
        except httpx.TransportError as error:
            trouble = f"{type(error).__name__} {error}".strip()
        pause = FIRST_PAUSE * 2**attempt * (1 + random.random())
        if attempt == args.rm_retries or time.monotonic() + pause > until:
            raise RewardError(f"{args.rm_url} failed {attempt + 1} times; last error: {trouble}")
        await asyncio.sleep(pause)
    raise AssertionError("unreachable")


def _reward(args: RewardArguments, answer: httpx.Response) -> Any:
    if answer.status_code != 200:
        raise RewardError(f"{args.rm_url} returned status {answer.status_code}: {answer.text[:200]}")
    try:
        return answer.json()
    except ValueError as error:
        raise RewardError(f"{args.rm_url} returned invalid JSON: {answer.text[:200]}") from error


def _client(args: RewardArguments) -> httpx.AsyncClient:
    """Returns a client for each running event loop, with at most --rm-concurrency connections."""
    loop = asyncio.get_running_loop()
    if loop not in _clients:
        limits = httpx.Limits(
            max_connections=args.rm_concurrency, max_keepalive_connections=args.rm_concurrency
        )
        _clients[loop] = httpx.AsyncClient(limits=limits)
    return _clients[loop]
