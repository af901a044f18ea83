"""Sends prompts to a running gateway: to the live model, and to version 0."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from openclaw.chat.client import ChatError, Server
from openclaw.methods.hinted_prompt import with_memory
from openclaw.progress.prompts import Item
from openclaw.progress.replies import Reply
from openclaw.types import Message

AT_A_TIME = 4
"""Concurrent requests to the live model; few, so that requests of users are not delayed."""
FIRST_AT_A_TIME = 8
NOT_ALLOWED = (401, 403)
"""HTTP statuses for a missing or wrong key; other errors mean that version 0 is not available."""

Answers = dict[str, Reply]
"""Replies by the id of their prompt."""
Query = dict[str, str]


class Model(Protocol):
    """A model that answers conversations."""

    def __call__(self, conversations: Sequence[list[Message]]) -> list[Reply]: ...


@dataclass(frozen=True)
class LiveModel:
    """The live model.

    Requests are greedy and without reasoning; they are not stored, judged or trained on.

    Args:
        max_tokens: most tokens of a reply.
        top: number of most likely tokens from which the entropy at each position is computed; 0: no entropy.
        model: name in requests; None: the model that serves the client key.
    """

    server: Server
    max_tokens: int
    top: int = 0
    model: str | None = None

    def __call__(self, conversations: Sequence[list[Message]]) -> list[Reply]:
        """Returns one reply for each conversation. Raises ChatError."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(self._ask, conversations))

    def _ask(self, messages: list[Message]) -> Reply:
        body = {**request_of(messages), "temperature": 0, "logprobs": True, "max_tokens": self.max_tokens}
        body |= {"top_logprobs": self.top} if self.top else {}
        body |= {"model": self.model} if self.model else {}
        answer = self.server.side_answer(body)
        try:
            choice = answer["choices"][0]
            tokens = (choice.get("logprobs") or {}).get("content") or []
            log_probs = [float(token["logprob"]) for token in tokens]
            text = str(choice["message"].get("content") or "")
            entropies = [entropy_of(token["top_logprobs"]) for token in tokens if token.get("top_logprobs")]
            ended = choice.get("finish_reason") != "length"
            return Reply(text.strip(), ended, _mean(log_probs), _mean(entropies))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ChatError(f"{self.server.url} returned a response that is not a chat completion") from error


@dataclass(frozen=True)
class FirstModel:
    """Version 0, for engines that can load other weights next to the live ones (the embedded engine)."""

    server: Server
    admin_key: str | None
    max_tokens: int

    def __call__(self, conversations: Sequence[list[Message]]) -> list[Reply]:
        """Returns one reply for each conversation. Raises ChatError, with the status if the server rejects a request."""
        replies: list[Reply] = []
        for at in range(0, len(conversations), FIRST_AT_A_TIME):
            part = [request_of(messages) for messages in conversations[at : at + FIRST_AT_A_TIME]]
            body = {"prompts": part, "max_tokens": self.max_tokens}
            answer = self.server.admin("POST", "/admin/progress/first", self.admin_key, json=body)
            replies += [Reply.read({**one, "text": one["text"].strip()}) for one in answer["answers"]]
        return replies


def request_of(messages: list[Message]) -> dict[str, Any]:
    """Returns a request body that disables reasoning, so that replies can be compared."""
    return {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}


def replies_to(model: Model, items: Sequence[Item], wishes: Sequence[str] = ()) -> Answers:
    """Returns the replies of a model, with these preferences in each prompt. Raises ChatError."""
    replies = model([with_memory(item.messages, wishes) for item in items])
    return {item.id: reply for item, reply in zip(items, replies, strict=True)}


@dataclass(frozen=True)
class Base:
    """The answers of version 0.

    `how`: description of their source; `model`: version 0, None if it is not available.
    """

    answers: Answers | None
    how: str
    model: Model | None


def answering_adapter(server: Server, base: str, messages: list[Message]) -> str | None:
    """Returns the adapter that serves the client key; None for the base model. Samples one token to find out.

    Raises ChatError.
    """
    answer = server.side_answer({**request_of(messages), "max_tokens": 1})
    return str(answer.get("model", "")).removeprefix(base).removeprefix(":") or None


def base_of(
    ask: LiveModel, admin_key: str | None, items: Sequence[Item], live: int, now: Answers, about: Query
) -> Base:
    """Returns the answers of version 0. Raises ChatError.

    If version 0 is live, these are the answers `now`. Else they are requested, or read from a report made when it was
    live. `about`: query parameters of requests for reports.
    """
    if live == 0:
        return Base(now, "version 0 is live: before and now are the same", ask)
    server, max_tokens = ask.server, ask.max_tokens
    first = FirstModel(server, admin_key, max_tokens)
    try:
        return Base(replies_to(first, items), "version 0, sampled now", first)
    except ChatError as error:
        if error.status is None or error.status in NOT_ALLOWED:
            raise
        why = str(error)
    recorded = server.admin("GET", "/admin/progress/recorded", admin_key, params=about)
    known = {item.id for item in items}
    kept = {name: Reply.read(one) for name, one in recorded["answers"].items() if name in known}
    if not kept or recorded["max_tokens"] != max_tokens:
        advice = "run this command before the first update, with the same --max-tokens"
        return Base(None, f"unknown: no report about version 0 has these prompts ({advice}); {why}", None)
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(recorded["time"]))
    return Base(kept, f"answers of version 0 recorded on {day}; {why}", None)


def entropy_of(top: Sequence[dict[str, Any]]) -> float:
    """Returns the entropy at a position in nats, from its most likely tokens; all other tokens count as one."""
    shares = [math.exp(float(one["logprob"])) for one in top]
    shares.append(max(0.0, 1.0 - sum(shares)))
    return -sum(share * math.log(share) for share in shares if share > 0)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
