"""Detects texts that programs write in the user role, and separates a person's part from them.

Clients put commands, reminders, results of tools and summaries into user messages. None of these is a person's
feedback. Known texts are listed with their clients; the rules here are for unlisted clients. Texts that no rule
recognises are templates if they occur verbatim in several sessions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Literal

from openclaw.common.messages import text_of, without_notes
from openclaw.types import Message

Writer = Literal["person", "tool", "program"]

_MAX_BLOCKS = 20
_MAX_OBJECT_CHARACTERS = 100_000
"""Most characters of a JSON object that is parsed."""
_EXAMINED = 6000
"""Characters of a text that are examined; generated text is recognised by its beginning."""

_OPENING = re.compile(
    r"<([A-Za-z][A-Za-z0-9]*(?:[-_ ][A-Za-z0-9]+)+|context|system|instructions|reminder|summary|environment|metadata)"
    r"(?: [a-z]+=[^>\n]*)?>"
)
"""A tag with two words, or one that encloses context."""
_PERSON_TAG = re.compile(
    r"<((?:user|human)[-_](?:query|message|request|input|prompt|question|feedback)|feedback)>"
)
_REPLY_TAG = re.compile(r"<(answer|user_message|feedback)>")
"""Tags around a person's own text, also around a reply inside a tool's result."""
_RESULT = re.compile(
    r"(?:CRITICAL: )?\[[a-z]+(?:_[a-z]+)+(?: [^\n]*?)?\] (?:Result:|The '\w+' parameter was empty)"
    r"|(?:OBSERVATION|EXECUTION RESULT of \[\w+\]):\n"
)
_BRACKETED = re.compile(
    r"\[{1,2}(?:[A-Z][A-Z0-9]+(?:[ _/-][A-Z0-9]+)*[\]:]"
    r"|[A-Z][^\]\n]*\b(?:auto-?generated|automated|notification|reminder)\b[^\]\n]*\])"
)
_SPEAKER = re.compile(r"(?:System|SYSTEM|Developer)(?: (?:note|message|reminder|notice))?: ")
_EVENT = re.compile(
    r"(?:The user (?:has )?(?:approved|accepted|rejected|denied|attached|interrupted|cancell?ed|made the following)\b"
    r"|(?:The|This) tool (?:call |execution |use )?(?:cannot be used in|was not executed|execution failed)\b"
    r"|The previous tool call was|Tool (?:call |execution |use )?(?:cancell?ed|rejected|denied|interrupted)\b)"
)
"""A client's report of events, in which the user is in the third person."""
_AUTOMATED = re.compile(
    r"\bthis is an (?:automated|automatic|auto-generated) (?:message|notification|reminder)\b", re.IGNORECASE
)
_HEADING = re.compile(r"^#{2,4} \S", re.MULTILINE)
_SECTION = re.compile(
    r"#{1,4} (?:Task|Instructions?|System|Guidelines?|Context|Role|Rules|Output|Input|Objective|Reminder)\b",
    re.IGNORECASE,
)
_HOUSEKEEPING = re.compile(
    r"\b\d+(?:-\d+)?[- ]words?(?:-or-less)? title\b|\btitle for (?:the|this) (?:conversation|chat)\b"
    r"|\b(?:summarize|summary of) (?:the|this) (?:previous )?conversation\b.*\b(?:include|provided|history)\b"
    r"|\b(?:reply|respond) with only the (?:enhanced|improved|rewritten) (?:prompt|text|query)\b"
    r"|\bsummary of the previous conversation\b"
    r"|\b(?:last|previous) (?:response|message) was cut off because it exceeded\b",
    re.IGNORECASE | re.DOTALL,
)
"""Requests of clients to title or summarise a conversation."""
_DIALOG = re.compile(r"^(?:User|USER|Human): .*\n(?:AI|Assistant|ASSISTANT|Response): ", re.MULTILINE)
_BRIEFING = re.compile(
    r"\bYour task is to\b|^(?:Available Tools|New lines|New summary|Current summary|Responses from models):",
    re.MULTILINE,
)
_LABEL = re.compile(
    r"^(?:\**)(?:IMPORTANT|CRITICAL|NOTE|WARNING|REMINDER|ATTENTION|EXAMPLE)\b\**:", re.MULTILINE
)
_ORDER = re.compile(
    r"(?<![A-Z] )\b(?:MUST(?: NOT)?|NEVER|DO NOT|ALWAYS|ONLY|NOW|NOT|EXCLUSIVELY|PROACTIVELY)\b(?! [A-Z]{2})"
)
"""Upper-case words between other words; people write whole sentences in upper case."""
_THIRD_PERSON = re.compile(
    r"\bthe (?:user|human|assistant|model|AI)(?:'s)?\b|\b(?:user|human)'s (?:task|request|message)\b"
)
_MACHINERY = re.compile(
    r"\btool (?:calls?|use|output|result)s?\b|`\w+` tool\b|\bcontext window\b|\bconversation (?:history|so far)\b"
    r"|\bchat history\b|\btranscript\b|\bprevious (?:response|turn|attempt|model|messages?)\b|\bsystem prompt\b"
    r"|\bJSON (?:object|format)\b|\b(?:token|context) limit\b|\bstate summary\b|\bfinish the interaction\b"
    r"|\bsession\b|\bcompact(?:ed|ion)\b",
    re.IGNORECASE,
)
_FORMAL = re.compile(
    r"\b(?:respond|reply|answer) (?:with|in) (?:an? |only |exclusively |\*\*)?(?:JSON|only|just|the following|a title)\b"
    r"|\b(?:return|output) only\b|\bonly return\b|\bdo not (?:respond to|call any|include any|mention)\b"
    r"|\bwithout any (?:preamble|introduct|additional|explanation)|\bno (?:additional|other) text\b"
    r"|\bif there (?:is|are) no(?:thing)?\b|\bif you (?:have|think|need|require|want)\b.*,|\botherwise,",
    re.IGNORECASE,
)
_MIN_CHARACTERS = 60
"""Minimum length in characters of a text whose signs are counted."""
_MIN_SIGNS = 3
"""Number of signs that mark a text as generated."""
SHORTEST_TEMPLATE = 200
"""Fewest characters of a template; people repeat shorter texts."""
TEMPLATE_SESSIONS = 3
"""Number of sessions from which a text counts as a template."""
REMEMBERED_TEXTS = 10_000
"""Most texts that are remembered; the least recently used one is dropped."""


def read_user_text(text: str) -> tuple[Writer, str]:
    """Returns who wrote a text in the user role, and the text without additions: a person's text, a tool's result, or
    a generated text."""
    text = without_notes(text).strip()
    head = text[:_EXAMINED]
    is_result = _RESULT.match(head) is not None
    words = _between(text, _REPLY_TAG if is_result else _PERSON_TAG)
    if words:
        return "person", words
    if is_result:
        return "tool", _without_blocks(text)
    if is_marked(head):
        return "program", text
    data = _json_object(text)
    if data is not None:
        feedback = data.get("feedback")
        return ("person", feedback) if isinstance(feedback, str) and feedback.strip() else ("tool", text)
    rest = _without_blocks(text)
    if not rest or is_marked(rest[:_EXAMINED]):
        return "program", text
    return ("program", text) if _looks_generated(rest[:_EXAMINED]) else ("person", rest)


def is_marked(text: str) -> bool:
    """Returns whether a text begins like generated texts."""
    return any(mark.match(text) for mark in (_BRACKETED, _SPEAKER, _EVENT)) or bool(_AUTOMATED.search(text))


def _between(text: str, tag: re.Pattern[str]) -> str:
    """Returns the text between these tags; "" if there is none."""
    parts: list[str] = []
    at = 0
    while len(parts) < _MAX_BLOCKS and (opening := tag.search(text, at)) is not None:
        end = text.find(f"</{opening[1]}>", opening.end())
        if end < 0:
            break
        parts.append(text[opening.end() : end].strip())
        at = end
    return "\n".join(filter(None, parts))


def _json_object(text: str) -> dict[str, Any] | None:
    """Returns the JSON object if the text is exactly one."""
    if not (text.startswith("{") and text.endswith("}") and len(text) <= _MAX_OBJECT_CHARACTERS):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _without_blocks(text: str) -> str:
    """Returns a text without tagged blocks at its beginning and end."""
    for _ in range(_MAX_BLOCKS):
        opening = _OPENING.match(text)
        end = text.find(f"</{opening[1]}>") if opening else -1
        if opening is None or end < 0:
            break
        text = text[end + len(opening[1]) + 3 :].lstrip()
    for _ in range(_MAX_BLOCKS):
        start = text.rfind("</") if text.endswith(">") else -1
        begins = text.rfind(f"<{text[start + 2 : -1]}>", 0, start) if start >= 0 else -1
        if begins < 0 or not _OPENING.match(text, begins):
            break
        text = text[:begins].rstrip()
    return text


def _looks_generated(text: str) -> bool:
    """Returns whether a text has enough signs of a template: sections, upper-case instructions, the user in the third
    person, agent vocabulary, formal conditions."""
    if text.startswith("### Task:") or (
        _SECTION.match(text) and len(_HEADING.findall(text)) + text.startswith("# ") >= 2
    ):
        return True
    if len(text) < _MIN_CHARACTERS:
        return False
    if _HOUSEKEEPING.search(text):
        return True
    signs = 2 * bool(_DIALOG.search(text)) + 2 * bool(_BRIEFING.search(text))
    signs += 2 * bool(_LABEL.search(text)) + bool(_ORDER.search(text)) + bool(_THIRD_PERSON.search(text))
    signs += min(2, len(set(_MACHINERY.findall(text.lower())))) + min(2, len(_FORMAL.findall(text)))
    return signs >= _MIN_SIGNS


class RepeatedTexts:
    """Counts the sessions of each long text in the user role, since the start of this process.

    Keys are counted separately, so that one client cannot make another client's feedback count as a template.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[bytes, set[str]] = OrderedDict()

    def without(self, key_name: str | None, session_id: str, next_state: Sequence[Message]) -> list[Message]:
        """Returns a next state without user messages that are templates, and counts its texts."""
        return [
            message
            for message in next_state
            if message["role"] != "user" or not self._is_repeated(key_name, session_id, text_of(message))
        ]

    def _is_repeated(self, key_name: str | None, session_id: str, text: str) -> bool:
        if len(text) < SHORTEST_TEMPLATE:
            return False
        text_of_key = f"{key_name or ''}\0{text}"
        digest = hashlib.blake2b(text_of_key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        sessions = self._sessions.setdefault(digest, set())
        self._sessions.move_to_end(digest)
        if len(self._sessions) > REMEMBERED_TEXTS:
            self._sessions.popitem(last=False)
        if len(sessions) < TEMPLATE_SESSIONS:
            sessions.add(session_id)
        return len(sessions) >= TEMPLATE_SESSIONS
