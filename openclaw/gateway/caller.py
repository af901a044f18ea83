"""Metadata of a request: session, person, turn type, consent to training, and the digest that identifies retries."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from openclaw.clients.registry import CLIENTS
from openclaw.common.messages import messages_in
from openclaw.errors import ClientError
from openclaw.gateway.chat_request import string
from openclaw.sessions.transcript import YES, is_true
from openclaw.settings import Settings
from openclaw.store.rights import NAMELESS, Asker, asker_of
from openclaw.types import ENVIRONMENT, Source

LONGEST_NAME = 256
"""Most characters of an id of a session, group or task, or of a person's name."""
_NO = frozenset({"0", "false", "no", "off"})
PERSON_HEADER = "openclaw-person"
"""Header with the name of the client's key. The server sets it, and removes one that the client sent."""
PEER_HEADER = "openclaw-peer"
"""Header with the client's address. The server sets it, and removes one that the client sent."""


@dataclass(frozen=True)
class RequestKey:
    """Identifies all attempts of one request. `repeated`: whether the client marked this attempt as a retry."""

    digest: bytes
    repeated: bool

    @classmethod
    def of(cls, headers: Mapping[str, str], body: Mapping[str, object], scope: str | None) -> RequestKey:
        """Returns the key of a request, from its client key, address, idempotency key, session and body."""
        idempotency_key = headers.get("idempotency-key", "")
        sender = [headers.get(PERSON_HEADER), headers.get(PEER_HEADER), idempotency_key, scope]
        retry_count = headers.get("x-stainless-retry-count", "0")
        digest = hashlib.blake2b(orjson.dumps([sender, body]), digest_size=16).digest()
        return cls(digest, bool(idempotency_key) or retry_count not in ("", "0"))


@dataclass(frozen=True)
class Caller:
    """The metadata of a request.

    Attributes:
        scope: session id in the request; None if it has none.
        person: the request's `user`, else the name of its key.
        train: whether the turn may be trained on.
        done: whether the session ends with this turn.
        key: identifies retries of the request.
        group: id of the group of attempts at one task; None if there is none.
        task: id of the task; None if there is none.
        memory: whether remembered preferences of the person may be added to the prompt.
        asker: sender of the request, for access control.
        began: time of the request, in seconds of the monotonic clock.
    """

    scope: str | None
    person: str | None
    turn_type: Literal["main", "side"]
    train: bool
    done: bool
    key: RequestKey
    group: str | None = None
    task: str | None = None
    source: Source = "gateway"
    memory: bool = True
    asker: Asker = NAMELESS
    began: float = field(default_factory=time.monotonic, compare=False)

    @classmethod
    def of(
        cls,
        headers: Mapping[str, str],
        body: Mapping[str, object],
        path_session: str | None,
        settings: Settings,
    ) -> Caller:
        """Returns the metadata of a request. Raises ClientError for an invalid value.

        Headers override the path, the path overrides the body, and the body overrides conventions of known clients.

        Args:
            headers: with lower-case names.
            path_session: session id in the URL; None if it has none.
        """
        # copied to a dictionary for fast lookups; of repeated headers the first one counts
        headers = {name: as_utf8(value) for name, value in reversed(list(headers.items()))}
        scope = headers.get("x-session-id") or path_session or string(body, "session_id")
        scope = scope or CLIENTS.session(headers, body)
        if scope is not None and (len(scope) > LONGEST_NAME or not scope.isprintable()):
            message = f"session_id must be printable and at most {LONGEST_NAME} characters long"
            raise ClientError(message, "session_id")
        turn_type = headers.get("x-turn-type") or string(body, "turn_type") or None
        if turn_type is not None and turn_type not in ("main", "side"):
            raise ClientError(f"turn_type is {turn_type!r}; it must be main or side", "turn_type")
        known_side = turn_type is None and CLIENTS.is_side(
            messages_in(body), headers, bool(body.get("tools"))
        )
        side = turn_type == "side" if turn_type else known_side or settings.default_turn_type == "side"
        train = _may_train(headers, body)
        done = is_true(headers.get("x-session-done")) or is_true(body.get("session_done"))
        asker = asker_named(headers, body, settings)
        key = RequestKey.of(headers, body, scope)
        group, task = (_name(headers, body, name) for name in ("group", "task"))
        source, memory = _source(headers, body), _is_on(headers, "memory")
        kind: Literal["main", "side"] = "side" if side else "main"
        return cls(scope, asker.person, kind, train, done, key, group, task, source, memory, asker)


def asker_named(headers: Mapping[str, str], body: Mapping[str, object], settings: Settings) -> Asker:
    """Returns the sender of a request, from its key and its field `user`. Raises ClientError."""
    user = string(body, "user") or None
    if user is not None and (len(user) > LONGEST_NAME or not user.isprintable()):
        raise ClientError(f"user must be printable and at most {LONGEST_NAME} characters long", "user")
    return asker_of(person_of(headers), user, settings.key_names)


def _name(headers: Mapping[str, str], body: Mapping[str, object], name: str) -> str | None:
    """Returns the id in the header `X-NAME-Id`, else in the body field `name`; None if absent. Raises ClientError."""
    value = headers.get(f"x-{name}-id") or string(body, name) or None
    if value is not None and (len(value) > LONGEST_NAME or not value.isprintable()):
        raise ClientError(f"{name} must be printable and at most {LONGEST_NAME} characters long", name)
    return value


def _source(headers: Mapping[str, str], body: Mapping[str, object]) -> Source:
    """Returns the source of the turn. Raises ClientError unless the header or field is absent or `environment`."""
    value = headers.get("x-source") or string(body, "source") or None
    if value not in (None, ENVIRONMENT):
        raise ClientError(f"source is {value!r}; it must be {ENVIRONMENT}, or absent", "source")
    return "gateway" if value is None else ENVIRONMENT


def _may_train(headers: Mapping[str, str], body: Mapping[str, object]) -> bool:
    """Returns whether the turn may be trained on. Raises ClientError for an invalid value, because a misspelt opt-out
    must not count as consent."""
    header_allows, field = _is_on(headers, "train"), body.get("train")
    if field is not None and not isinstance(field, bool):
        raise ClientError("train must be true or false", "train")
    return field is not False and header_allows


def _is_on(headers: Mapping[str, str], name: str) -> bool:
    """Returns whether the header `X-NAME` is on or absent. Raises ClientError for an invalid value."""
    value = headers.get(f"x-{name}")
    if value is not None and value.strip().lower() not in (*YES, *_NO):
        raise ClientError(f"X-{name.capitalize()} is {value!r}; it must be on or off", name)
    return value is None or is_true(value)


def as_utf8(value: str) -> str:
    """Returns a header value decoded as UTF-8. ASGI servers decode headers as Latin-1, but most clients send UTF-8."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def person_of(headers: Mapping[str, str]) -> str | None:
    """Returns the name of the request's key; None if it has none."""
    name = headers.get(PERSON_HEADER)
    return None if name is None else as_utf8(name)
