"""Queries a running gateway: the live model by side requests, the first model by the administrator's route."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from openclaw.chat.client import ChatError, Server
from openclaw.methods.hinted_prompt import with_memory
from openclaw.progress.prompts import Item
from openclaw.progress.replies import Reply
from openclaw.types import Message

AT_A_TIME = 4
"""Concurrent requests to the live model; few enough that users' requests, which have priority, are not delayed."""
FIRST_AT_A_TIME = 8
NOT_ALLOWED = (401, 403)
"""HTTP statuses of a server that requires another key; other errors mean that the first model cannot be queried."""

Answers = dict[str, Reply]
"""Replies by the id of their prompt."""
Query = dict[str, str]
Told = Callable[[str], None]
"""Receives a line of progress text."""


class Model(Protocol):
    """A model that answers prompts."""

    def __call__(self, conversations: Sequence[list[Message]]) -> list[Reply]: ...


@dataclass(frozen=True)
class LiveModel:
    """The live model. Requests are greedy and without reasoning; they are not stored, trained on or judged. `top`:
    number of most likely tokens from which the entropy at each position is computed; 0: no entropy. `model`: name in
    requests; None: whatever answers the client key."""

    server: Server
    max_tokens: int
    top: int = 0
    model: str | None = None

    def __call__(self, conversations: Sequence[list[Message]]) -> list[Reply]:
        """Raises ChatError."""
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
            raise ChatError(f"{self.server.url} sent an answer that is not a chat completion") from error


@dataclass(frozen=True)
class FirstModel:
    """Version 0, answered by an engine that can hold weights other than the live ones (the embedded engine)."""

    server: Server
    admin_key: str | None
    max_tokens: int

    def __call__(self, conversations: Sequence[list[Message]]) -> list[Reply]:
        """Raises ChatError, with a status if the server rejects the request."""
        replies: list[Reply] = []
        for at in range(0, len(conversations), FIRST_AT_A_TIME):
            part = [request_of(messages) for messages in conversations[at : at + FIRST_AT_A_TIME]]
            body = {"prompts": part, "max_tokens": self.max_tokens}
            answer = self.server.admin("POST", "/admin/progress/first", self.admin_key, json=body)
            replies += [Reply.read({**one, "text": one["text"].strip()}) for one in answer["answers"]]
        return replies


def request_of(messages: list[Message]) -> dict[str, Any]:
    """Returns a request body; it disables reasoning, so that replies can be compared."""
    return {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}


def asked(model: Model, items: Sequence[Item], wishes: Sequence[str] = ()) -> Answers:
    """Returns the model's replies to the prompts, with these preferences in each. Raises ChatError."""
    replies = model([with_memory(item.messages, wishes) for item in items])
    return {item.id: reply for item, reply in zip(items, replies, strict=True)}


@dataclass(frozen=True)
class Base:
    """The first model's answers. `how`: description of their source; `model`: the first model, if it can be queried;
    otherwise None."""

    answers: Answers | None
    how: str
    model: Model | None


def answering_adapter(server: Server, base: str, messages: list[Message]) -> str | None:
    """Returns the adapter that answers the client key; None: the model itself. It samples one token. Raises
    ChatError."""
    answer = server.side_answer({**request_of(messages), "max_tokens": 1})
    return str(answer.get("model", "")).removeprefix(base).removeprefix(":") or None


def base_of(
    ask: LiveModel, admin_key: str | None, items: Sequence[Item], live: int, now: Answers, about: Query
) -> Base:
    """Returns the first model's answers. They are `now` if it is live, else requested now, else those stored when it
    was live. `about`: parameters of requests for reports. Raises ChatError."""
    if live == 0:
        return Base(now, "the first model is live: before and now are the same", ask)
    server, max_tokens = ask.server, ask.max_tokens
    first = FirstModel(server, admin_key, max_tokens)
    try:
        return Base(asked(first, items), "the first model, asked now as well as the live one", first)
    except ChatError as error:
        if error.status is None or error.status in NOT_ALLOWED:
            raise
        why = str(error)
    recorded = server.admin("GET", "/admin/progress/recorded", admin_key, params=about)
    known = {item.id for item in items}
    kept = {name: Reply.read(one) for name, one in recorded["answers"].items() if name in known}
    if not kept or recorded["max_tokens"] != max_tokens:
        advice = "run this command before the model has learned, with the same --max-tokens"
        return Base(None, f"unknown, and no report of version 0 has these prompts ({advice}); {why}", None)
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(recorded["time"]))
    return Base(kept, f"the answers of version 0 that were recorded on {day}; {why}", None)


def entropy_of(top: Sequence[dict[str, Any]]) -> float:
    """Returns the entropy at a position in nats, from its most likely tokens; all others count as one."""
    shares = [math.exp(float(one["logprob"])) for one in top]
    shares.append(max(0.0, 1.0 - sum(shares)))
    return -sum(share * math.log(share) for share in shares if share > 0)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
