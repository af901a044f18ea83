"""Greedy answers by any version on disk, while the live version continues to serve. The answers are not stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openclaw.engine.trial import TrialRequest
from openclaw.errors import ClientError, EngineError
from openclaw.gateway.exchange import Completion
from openclaw.gateway.gateway import Gateway
from openclaw.types import Message, WeightVersion

MOST_TOKENS = 512
FIRST = 0
"""The version number of the initial model."""


@dataclass(frozen=True)
class TrialAnswer:
    """An answer of a version.

    Attributes:
        log_prob: mean over the tokens, in nats; None without log-probs.
        ended: whether the answer ended with a stop token, not at the length limit.
    """

    message: Message
    log_prob: float | None
    ended: bool


async def answers_of(
    gateway: Gateway, version: WeightVersion, prompts: Sequence[list[int]], tools: bool = False
) -> list[Message]:
    """Returns the answer of a version to each prompt [T], of at most `MOST_TOKENS` tokens.

    Args:
        tools: whether tool calls in the answers are parsed.

    Raises:
        ClientError: 409 if the version is no longer on disk, or no engine can hold a second set of weights; another
            status if the engine rejects the request.
        EngineError: no engine answers.
    """
    request = TrialRequest(version.version, folder_of(version), list(prompts), MOST_TOKENS)
    return [one.message for one in await tried(gateway, request, tools)]


async def first_answers(
    gateway: Gateway, known: Sequence[WeightVersion], prompts: Sequence[list[int]], most: int
) -> list[TrialAnswer]:
    """Returns the answers of the initial model to prompts [T], of at most `most` tokens.

    The initial model is version 0 if it is on disk, else the gateway's model folder. Raises the same errors as
    `answers_of`.
    """
    folder = first_folder(known) or str(gateway.settings.model_folder)
    return await tried(gateway, TrialRequest(FIRST, folder, list(prompts), most))


def first_folder(known: Sequence[WeightVersion]) -> str | None:
    """Returns the folder of version 0; None if it is not on disk."""
    paths = (one.path for one in known if one.version == FIRST)
    return next((path for path in paths if path and Path(path).is_dir()), None)


async def tried(gateway: Gateway, request: TrialRequest, tools: bool = False) -> list[TrialAnswer]:
    """Returns the answers of the first engine that supports other versions. Raises the same errors as `answers_of`."""
    last_error: EngineError | None = None
    for url in gateway.engines.urls:
        try:
            answers = await gateway.engines.try_weights(url, request)
        except EngineError as error:
            last_error = error
            continue
        if answers is not None:
            pairs = zip(request.prompts, answers, strict=True)
            return [_read(gateway, prompt, answer, tools) for prompt, answer in pairs]
    if last_error is not None:
        raise last_error
    message = (
        "this engine holds only one set of weights; only the embedded engine can answer with another version"
    )
    raise ClientError(message, code="one_set_of_weights", status=409)


def folder_of(version: WeightVersion) -> str:
    """Returns the folder of a version's weights. Raises ClientError (409) if it was deleted."""
    if version.path is None or not Path(version.path).is_dir():
        message = (
            f"version {version.version} is no longer on disk; increase --keep-versions to keep more versions"
        )
        raise ClientError(message, "version", "not_on_disk", 409)
    return version.path


def _read(gateway: Gateway, prompt: list[int], answer: dict[str, Any], tools: bool) -> TrialAnswer:
    log_probs = answer.get("log_probs") or []
    mean = sum(log_probs) / len(log_probs) if log_probs else None
    return TrialAnswer(_message(gateway, prompt, answer, tools), mean, bool(answer["ended"]))


def _message(gateway: Gateway, prompt: list[int], answer: dict[str, Any], tools: bool) -> Message:
    """Returns the answer as the assistant message that a client would receive."""
    parser, completion = gateway.format.parser(tools=tools), Completion([])
    parser.begin(prompt, None)
    completion.add(parser.feed([int(token) for token in answer["ids"]]))
    completion.add(parser.finish())
    completion.complete("stop" if answer["ended"] else "length")
    return completion.message()
