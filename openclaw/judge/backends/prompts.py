"""Prompts of judge models. The rules backend needs none.

A prompt is a text file: the system text, a line `=== user ===`, and the user's text with the placeholders {response}
and {next_state}, and optionally {request}, {role} and {mark}: a random word, different in every request, in lines
that delimit the material. The hint markers contain it too. `eval.md` asks for a score, `hint.md` for a hint.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from openclaw.common.messages import last_user_text
from openclaw.errors import ConfigError
from openclaw.judge.backends.votes import HINT_END, HINT_START, marked
from openclaw.judge.questions import JudgeQuestion
from openclaw.types import Message

_SECRET = secrets.token_bytes(16)
SHIPPED = Path(__file__).parents[1] / "prompts"

_SEPARATOR = re.compile(r"^=== user ===[ \t]*$", re.MULTILINE)
_PLACE = re.compile(r"\{(request|response|next_state|role|mark)\}")
_SPECIAL = re.compile(
    r"<(?=[|｜])|<(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|think|tool_call|tool_response|image)>)|\[(?=/?INST\])"
    r"|<(?=<\s?/?SYS>>)|\[(?=gMASK\])"
)
"""Beginnings of special tokens in a text, which an API would parse as tokens of its model."""
_VOTE_BOX = re.compile(r"\\boxed(?=\s*\{[^{}\d]{0,20}[01](?:\.0+)?[^{}\d]{0,3}\})")


@dataclass(frozen=True)
class Prompt:
    """One prompt template. `name`: its file's name and the first 12 hex digits of the SHA-256 of its text, so that
    judgements record the exact wording."""

    name: str
    system: str
    user: str

    @classmethod
    def read(cls, path: Path) -> Prompt:
        """Reads a prompt file. Raises ConfigError if it cannot be read or lacks parts."""
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"prompt {path} cannot be read: {error}") from error
        parts = _SEPARATOR.split(text)
        if len(parts) != 2:
            raise ConfigError(f"prompt {path} needs one line `=== user ===` between system and user text")
        system, user = (part.strip() for part in parts)
        missing = {"response", "next_state"} - set(_PLACE.findall(user))
        if missing:
            raise ConfigError(f"prompt {path} has no place {{{sorted(missing)[0]}}} in its user text")
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return cls(f"{path.stem}@{digest}", system, user)

    def messages(self, question: JudgeQuestion, longest: int | None = None, mark: str = "") -> list[Message]:
        """Returns the chat messages of a question. The middle of a request, response or next state with more than
        `longest` characters is omitted. `mark`: the random word of this request."""
        values = {
            "request": defused(shorten(last_user_text(question.messages), longest)) or "(not known)",
            "response": defused(shorten(question.response, longest)),
            "next_state": defused(shorten(question.next_text, longest)),
            "role": question.role,
            "mark": mark,
        }
        asked = _PLACE.sub(lambda place: values[place.group(1)], _with_mark(self.user, mark))
        system = _PLACE.sub(lambda place: mark if place.group(1) == "mark" else place.group(), self.system)
        return [{"role": "system", "content": _with_mark(system, mark)}, {"role": "user", "content": asked}]


@dataclass(frozen=True)
class Asked:
    """A prompt filled with a question."""

    prompt: Prompt
    question: JudgeQuestion

    @cached_property
    def mark(self) -> str:
        """Returns the random word of this request. A process uses the same word for the same request, so that votes
        are reproducible by seed; the material cannot contain it, because it depends on a secret of the process."""
        shown = "\0".join((self.prompt.name, self.question.response, self.question.next_text))
        return hashlib.blake2b(shown.encode(errors="replace"), digest_size=3, key=_SECRET).hexdigest()

    def messages(self, longest: int | None = None) -> list[Message]:
        """Returns the chat messages; see `Prompt.messages`."""
        return self.prompt.messages(self.question, longest, self.mark)

    @property
    def longest_text(self) -> int:
        """Returns the number of characters of the longest text."""
        shown = (last_user_text(self.question.messages), self.question.response, self.question.next_text)
        return max(map(len, shown))


@dataclass(frozen=True)
class PromptSet:
    """The prompts of one judge."""

    eval: Prompt
    hint: Prompt

    @classmethod
    def load(cls, folder: str | None) -> PromptSet:
        """Returns the shipped prompts, each replaced by the file of its name in `folder`. Raises ConfigError, also if
        the folder has none of them."""
        own = Path(folder).expanduser() if folder else SHIPPED
        files = {name: own / f"{name}.md" for name in ("eval", "hint")}
        if not any(path.is_file() for path in files.values()):
            raise ConfigError(f"--judge-prompt-dir {own} has neither eval.md nor hint.md")
        paths = [path if path.is_file() else SHIPPED / path.name for path in files.values()]
        return cls(*map(Prompt.read, paths))


def shorten(text: str, longest: int | None) -> str:
    """Returns a text of at most about `longest` characters, with a note in place of its middle."""
    if longest is None or len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"


def defused(text: str) -> str:
    """Returns material without special tokens and without boxes that could be taken for the judge's vote; it reads
    the same to a person."""
    return _VOTE_BOX.sub(lambda _: "\\box", _SPECIAL.sub(lambda match: f"{match.group()} ", text))


def _with_mark(text: str, mark: str) -> str:
    for marker in (HINT_START, HINT_END):
        text = text.replace(marker, marked(marker, mark))
    return text
