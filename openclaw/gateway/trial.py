"""What a version answers that need not be live: greedily, beside the weights that serve; nothing of it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openclaw.engine.trial import TrialRequest
from openclaw.errors import ClientError, EngineError
from openclaw.gateway.exchange import Completion
from openclaw.gateway.gateway import Gateway
from openclaw.types import Message, WeightVersion

MOST_TOKENS = 512


async def answers_of(
    gateway: Gateway, version: WeightVersion, prompts: Sequence[list[int]], tools: bool = False
) -> list[Message]:
    """One message a prompt [T], of at most `MOST_TOKENS` tokens. People's requests go on meanwhile.

    Raises:
        ClientError: the version is not on disk any more, or no engine here holds a second set of weights (409), or a
            prompt leaves no room. EngineError: no engine answers.
    """
    asked = TrialRequest(version.version, folder_of(version), list(prompts), MOST_TOKENS)
    failed: EngineError | None = None
    for url in gateway.engines.urls:
        try:
            found = await gateway.engines.try_weights(url, asked)
        except EngineError as error:
            failed = error
            continue
        if found is not None:
            pairs = zip(prompts, found, strict=True)
            return [_message(gateway, prompt, answer, tools) for prompt, answer in pairs]
    if failed is not None:
        raise failed
    message = "this engine holds one set of weights: only the embedded one can answer with another version"
    raise ClientError(message, code="one_set_of_weights", status=409)


def folder_of(version: WeightVersion) -> str:
    """Where its weights are. Raises ClientError (409) where they are gone."""
    if version.path is None or not Path(version.path).is_dir():
        message = f"version {version.version} is not on disk any more (--keep-versions keeps more)"
        raise ClientError(message, "version", "not_on_disk", 409)
    return version.path


def _message(gateway: Gateway, prompt: list[int], answer: dict[str, Any], tools: bool) -> Message:
    """The assistant message that a client would get."""
    parser, completion = gateway.format.parser(tools=tools), Completion([])
    parser.begin(prompt, None)
    completion.add(parser.feed([int(token) for token in answer["ids"]]))
    completion.add(parser.finish())
    completion.complete("stop" if answer["ended"] else "length")
    return completion.message()
