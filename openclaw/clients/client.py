"""Declares a client: noise in its messages, session ids, marks of side turns, its settings; and combines the rules of
several clients.

Rules of different clients never conflict: all of them can be applied to any request. Texts are untrusted and may be
long: each rule scans a text once, from its beginning or its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, Protocol

from openclaw.clients.program_text import Writer, read_user_text
from openclaw.common.messages import messages_in, text_of

Messages = Sequence[Mapping[str, Any]]
Place = Literal["system", "system line", "first", "last"]
"""Where a mark is: the system prompt, any line of it, the first or the last user text."""


class Noise(Protocol):
    """Text that a client adds to a user's or tool's text."""

    def remove(self, text: str) -> str:
        """Returns the text without the noise."""
        ...


@dataclass(frozen=True)
class Head:
    """Noise at the beginning; leading blanks are ignored."""

    pattern: re.Pattern[str]

    def remove(self, text: str) -> str:
        text = text.lstrip()
        match = self.pattern.match(text)
        return text[match.end() :] if match else text


@dataclass(frozen=True)
class Tail:
    """Noise from the last occurrence of `begins` to the end, if that is one line."""

    begins: str

    def remove(self, text: str) -> str:
        at = text.rfind(self.begins)
        return text if at < 0 or "\n" in text[at:].rstrip() else text[:at].rstrip()


@dataclass(frozen=True)
class From:
    """Noise from the last occurrence of `begins` to the end, of any length."""

    begins: str

    def remove(self, text: str) -> str:
        at = text.rfind(self.begins)
        return text if at < 0 else text[:at]


@dataclass(frozen=True)
class Block:
    """Noise between two marks, anywhere."""

    begins: str
    ends: str

    def remove(self, text: str) -> str:
        kept, at = [], 0
        while (start := text.find(self.begins, at)) >= 0:
            end = text.find(self.ends, start)
            if end < 0:
                break
            kept.append(text[at:start].rstrip())
            at = end + len(self.ends)
        return "".join([*kept, text[at:]]) if at else text


@dataclass(frozen=True)
class Own:
    """The beginning of a text that a client generates in the user role.

    Attributes:
        tool: whether it is a tool's result, as sent without native tool calls.
        whole: whether the complete text must match, because a person's text may begin like it.
    """

    begins: str
    tool: bool = False
    whole: bool = False

    def is_in(self, text: str) -> bool:
        return text.startswith(self.begins) and (not self.whole or text == self.begins)


@dataclass(frozen=True)
class Before:
    """A client's own text before the person's text in one message: it begins with `begins`, and the person's text
    follows the line of the last `ends`."""

    begins: str
    ends: str

    def words(self, text: str) -> str | None:
        """Returns the person's text; None if the text does not match."""
        at = text.rfind(self.ends) if text.startswith(self.begins) else -1
        if at < 0:
            return None
        after = text[at + len(self.ends) :]
        return after.partition("\n")[2].strip() if "\n" in after else ""


@dataclass(frozen=True)
class SideMark:
    """The beginning of a text at `place` that marks a side turn; `what` names the kind of turn."""

    what: str
    place: Place
    begins: str


@dataclass(frozen=True)
class HeaderMark:
    """A header that names the kind of a request, which is a side turn unless the kind is in `main`.

    Attributes:
        part: key of the kind, if the header contains a JSON object.
    """

    header: str
    main: tuple[str, ...] = ()
    part: str | None = None

    def is_side(self, headers: Mapping[str, str]) -> bool:
        """Returns whether the header marks a side turn; a missing header, or one without the kind, does not."""
        value: object = headers.get(self.header)
        if value is not None and self.part is not None:
            value = _part_of(str(value), self.part)
        return bool(value) and value not in self.main


@dataclass(frozen=True)
class Model:
    """The served model. `context` and `max_tokens` are in tokens."""

    id: str
    context: int
    max_tokens: int


@dataclass(frozen=True)
class Link:
    """Settings for connecting a client.

    Attributes:
        base_url: ends in /v1.
        provider: name of this server in the client's settings.
        default: whether the model becomes the client's default.
    """

    base_url: str
    key: str
    model: Model
    provider: str
    default: bool = True


@dataclass(frozen=True)
class OwnFile:
    """A client's own settings file, which `openclaw.connect` writes.

    Attributes:
        folder: folder of the file.
        variables: pairs of an environment variable that replaces `folder`, and the subfolder below its value.
        names: possible file names; the first existing one is used, else the first.
        form: file format. A JSON file with comments is not changed.
        entries: returns values (numbers, texts, switches) by path for a link; YAML paths have at most two keys.
        start: command that starts the client with the model.
        least_context: smallest context length in tokens with which the client works.
        has_default: whether the client can list the model and use another one by default.
    """

    folder: str
    variables: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    form: Literal["json", "toml", "yaml"]
    entries: Callable[[Link], Mapping[tuple[str, ...], Any]]
    start: str
    least_context: int = 0
    has_default: bool = True


@dataclass(frozen=True)
class Client:
    """The rules of one client. Apart from these it behaves like any OpenAI client.

    Attributes:
        noise: removed from texts, in this order.
        own: texts that the client generates in the user role.
        befores: texts that it puts before a person's text in one message.
        scaffold: prefixes of generated texts that it inserts into each request at a new position, each followed by a
            generated answer.
        session_headers, session_fields: headers and fields with the session id, in order of preference, written
            `<id>:<n>` or `<id>`.
        counted_headers: headers that contain the session id only if they are written `<id>:<n>`.
        session_line: prefix of the last line of the first user text, and the pattern of the session id in that line.
        side_marks, side_headers: marks of side turns, in texts and in headers.
        offers_tools: a header of this client. Its conversations always have tools, so a request with this header and
            without tools is a side turn.
        own_file: its settings file, which `openclaw.connect` writes.
        settings: returns instructions for using this server, from base URL, model and key; `openclaw.connect` prints
            them. The key is the name of its variable, or a placeholder if none is needed.

    """

    name: str
    noise: tuple[Noise, ...] = ()
    own: tuple[Own, ...] = ()
    befores: tuple[Before, ...] = ()
    scaffold: tuple[str, ...] = ()
    session_headers: tuple[str, ...] = ()
    counted_headers: tuple[str, ...] = ()
    session_fields: tuple[str, ...] = ()
    session_line: tuple[str, re.Pattern[str]] | None = None
    side_marks: tuple[SideMark, ...] = ()
    side_headers: tuple[HeaderMark, ...] = ()
    offers_tools: str | None = None
    own_file: OwnFile | None = None
    settings: Callable[[str, Model, str], str] | None = None

    def clean(self, text: str) -> str:
        """Returns a text without the client's noise."""
        for noise in self.noise:
            text = noise.remove(text)
        return text

    def session(self, headers: Mapping[str, str], body: Mapping[str, object]) -> str | None:
        """Returns the session id sent by this client, if any."""
        named: list[Any] = [headers.get(name) for name in self.session_headers]
        counted = [headers.get(name, "") for name in self.counted_headers]
        named += [value for value in counted if _COUNTER.search(value)]
        named += [body.get(name) for name in self.session_fields]
        session_name = next((value for value in named if isinstance(value, str) and value), None)
        return (
            _COUNTER.sub("", session_name) if session_name else self._session_of_first_text(messages_in(body))
        )

    def is_side(
        self, messages: Messages, headers: Mapping[str, str] = MappingProxyType({}), has_tools: bool = True
    ) -> bool:
        """Returns whether one of this client's marks of side turns matches."""
        return Clients((self,)).is_side(messages, headers, has_tools)

    def has_side_headers(self, headers: Mapping[str, str], has_tools: bool) -> bool:
        """Returns whether this client's headers name a side turn."""
        if any(mark.is_side(headers) for mark in self.side_headers):
            return True
        return not has_tools and self.offers_tools is not None and self.offers_tools in headers

    def _session_of_first_text(self, messages: Messages) -> str | None:
        if self.session_line is None:
            return None
        begins, pattern = self.session_line
        first = next((text_of(message) for message in messages if message.get("role") == "user"), "")
        at = first.rfind(begins)
        line = first[at:].rstrip() if at >= 0 else ""
        match = pattern.search(line) if line and "\n" not in line else None
        return match[1] if match else None


class Clients(tuple[Client, ...]):
    """The rules of several clients together."""

    def clean(self, text: str) -> str:
        """Returns a user's or tool's text without additions of clients."""
        for remove in self._removals:
            text = remove(text)
        return text.strip()

    @cached_property
    def _removals(self) -> tuple[Callable[[str], str], ...]:
        """Returns the noise rules of all clients, in order."""
        return tuple(noise.remove for client in self for noise in client.noise)

    def read(self, text: str) -> tuple[Writer, str]:
        """Returns who wrote a text in the user role, and the text without additions: a person's text, a tool's
        result, or a generated text."""
        text = self.clean(text)
        befores = (before.words(text) for client in self for before in client.befores)
        words = next((spoken for spoken in befores if spoken is not None), None)
        if words is not None:
            return ("person", words) if words else ("program", text)
        if text.startswith(self.scaffold):
            return "program", text
        writer, rest = read_user_text(text)
        if writer == "person":
            own = next((one for client in self for one in client.own if one.is_in(rest)), None)
            if own is not None:
                return ("tool" if own.tool else "program"), rest
        return writer, rest

    @cached_property
    def scaffold(self) -> tuple[str, ...]:
        """Returns prefixes of texts that are not part of the history: a client moves them in each request."""
        return tuple(begins for client in self for begins in client.scaffold)

    def session(self, headers: Mapping[str, str], body: Mapping[str, object]) -> str | None:
        """Returns the session id in a client's own headers, fields or messages; None if it sends none."""
        clients = self
        if self._session_names.isdisjoint(headers) and self._session_fields.isdisjoint(body):
            clients = self._with_session_line
        return next(filter(None, (client.session(headers, body) for client in clients)), None)

    @cached_property
    def _session_names(self) -> frozenset[str]:
        """Returns every header that can contain a session id."""
        return frozenset(
            name for client in self for name in (*client.session_headers, *client.counted_headers)
        )

    @cached_property
    def _session_fields(self) -> frozenset[str]:
        return frozenset(name for client in self for name in client.session_fields)

    @cached_property
    def _with_session_line(self) -> Clients:
        """Returns the clients that may send the session id in a text."""
        return Clients(client for client in self if client.session_line is not None)

    def is_side(
        self, messages: Messages, headers: Mapping[str, str] = MappingProxyType({}), has_tools: bool = True
    ) -> bool:
        """Returns whether a request with these messages and headers (lower case) is a client's housekeeping, not part
        of a conversation."""
        if not self._side_names.isdisjoint(headers) and any(
            client.has_side_headers(headers, has_tools) for client in self
        ):
            return True
        system = next((text_of(message) for message in messages if message.get("role") == "system"), "")
        if _SUBAGENT.match(system):
            return True
        marks = self._marks
        if not marks:
            return False
        users = [message for message in messages if message.get("role") == "user"]
        return (
            system.startswith(marks.get("system", ()))
            or self._words(users).startswith(marks.get("first", ()))
            or self._words(reversed(users)).startswith(marks.get("last", ()))
            or any(f"\n{begins}" in system for begins in marks.get("system line", ()))
        )

    @cached_property
    def _side_names(self) -> frozenset[str]:
        """Returns every header that can mark a side turn."""
        names = [mark.header for client in self for mark in client.side_headers]
        return frozenset([*names, *(client.offers_tools for client in self if client.offers_tools)])

    @cached_property
    def _marks(self) -> dict[Place, tuple[str, ...]]:
        """Returns the prefixes that mark side turns, by place."""
        marks = [mark for client in self for mark in client.side_marks]
        return {
            place: tuple(mark.begins for mark in marks if mark.place == place)
            for place in {mark.place for mark in marks}
        }

    def _words(self, messages: Any) -> str:
        """Returns the first text that is not only noise."""
        texts = (self.clean(text_of(message)) for message in messages)
        return next((text for text in texts if text), "")


def _part_of(text: str, name: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value.get(name) if isinstance(value, dict) else None


_COUNTER = re.compile(r":\d+\Z")
_SUBAGENT = re.compile(r"\s*You are [^.\n]{0,100}\bsub-?agent\b")
"""How system prompts of subagents begin, in clients that are not listed too."""
