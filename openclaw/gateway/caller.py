"""Metadata of a request: session, person, turn type, consent to training, and the key that identifies the request."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
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
"""Most characters of a session id or a person's name."""
_NO = frozenset({"0", "false", "no", "off"})
PERSON_HEADER = "openclaw-person"
PEER_HEADER = "openclaw-peer"
"""Header set by this server: the name of the client's key, and its address. Headers of these names from a client are
removed."""


@dataclass(frozen=True)
class RequestKey:
    """Identifies a request; `repeated`: the client marked it as a retry."""

    digest: bytes
    repeated: bool

    @classmethod
    def of(cls, headers: Mapping[str, str], body: Mapping[str, object], scope: str | None) -> RequestKey:
        """Returns the key of a request; all attempts of one request have the same address, key, session and body."""
        name = headers.get("idempotency-key", "")
        who = [headers.get(PERSON_HEADER), headers.get(PEER_HEADER), name, scope]
        counted = headers.get("x-stainless-retry-count", "0")
        digest = hashlib.blake2b(orjson.dumps([who, body]), digest_size=16).digest()
        return cls(digest, bool(name) or counted not in ("", "0"))


@dataclass(frozen=True)
class Caller:
    """The metadata of a request. `scope`: the session named by the request, if any; `done`: the session ends with it;
    `group` and `task`: of the attempt; `memory`: remembered preferences of the person may be added to the prompt;
    `asker`: whose stored turns the request may access."""

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

    @classmethod
    def of(
        cls,
        headers: Mapping[str, str],
        body: Mapping[str, object],
        path_session: str | None,
        settings: Settings,
    ) -> Caller:
        """Reads the metadata: headers (lower case) override the path, the path the body, and the body the client's
        known conventions. Raises ClientError."""
        # a dictionary, because lookups are frequent; of repeated headers the first counts
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
    """Returns whose request it is: the bearer of its key, who may name a person as `user`. Raises ClientError."""
    user = string(body, "user") or None
    if user is not None and (len(user) > LONGEST_NAME or not user.isprintable()):
        raise ClientError(f"user must be printable and at most {LONGEST_NAME} characters long", "user")
    return asker_of(person_of(headers), user, settings.key_names)


def _name(headers: Mapping[str, str], body: Mapping[str, object], name: str) -> str | None:
    """Returns the id in a header such as X-Group-Id, else in the body. Raises ClientError."""
    value = headers.get(f"x-{name}-id") or string(body, name) or None
    if value is not None and (len(value) > LONGEST_NAME or not value.isprintable()):
        raise ClientError(f"{name} must be printable and at most {LONGEST_NAME} characters long", name)
    return value


def _source(headers: Mapping[str, str], body: Mapping[str, object]) -> Source:
    """Returns the source of the turn. Raises ClientError for any other value than environment."""
    value = headers.get("x-source") or string(body, "source") or None
    if value not in (None, ENVIRONMENT):
        raise ClientError(f"source is {value!r}; it must be {ENVIRONMENT}, or absent", "source")
    return "gateway" if value is None else ENVIRONMENT


def _may_train(headers: Mapping[str, str], body: Mapping[str, object]) -> bool:
    """Returns whether the turn may be trained on. Raises ClientError for a misspelt opt-out, which must not count as
    consent."""
    asked, wish = _is_on(headers, "train"), body.get("train")
    if wish is not None and not isinstance(wish, bool):
        raise ClientError("train must be true or false", "train")
    return wish is not False and asked


def _is_on(headers: Mapping[str, str], name: str) -> bool:
    """Returns whether a header such as X-Train does not opt out. Raises ClientError for a value other than yes or
    no."""
    asked = headers.get(f"x-{name}")
    if asked is not None and asked.strip().lower() not in (*YES, *_NO):
        raise ClientError(f"X-{name.capitalize()} is {asked!r}; it must be on or off", name)
    return asked is None or is_true(asked)


def as_utf8(value: str) -> str:
    """Returns a header decoded as the client meant it: mostly UTF-8, which ASGI decodes as Latin-1."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def person_of(headers: Mapping[str, str]) -> str | None:
    """Returns the name of the request's key, if it has one."""
    name = headers.get(PERSON_HEADER)
    return None if name is None else as_utf8(name)
