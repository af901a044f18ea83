"""What a judge model is asked, and how its reply is read. The rules backend needs neither.

A prompt is a text file: the system text, a line `=== user ===`, and the user's text with the places {response},
{next_state} and {role}. `eval.md` asks for a score, `hint.md` for a hint.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from openclaw.errors import ConfigError
from openclaw.judge.questions import JudgeQuestion
from openclaw.types import Message, Vote

SHIPPED = Path(__file__).parents[1] / "prompts"

_SEPARATOR = re.compile(r"^=== user ===[ \t]*$", re.MULTILINE)
_PLACE = re.compile(r"\{(response|next_state|role)\}")
_BOXED = re.compile(r"\\boxed\{\s*([+-]?\d)\s*\}")
HINT_START, HINT_END = "[HINT_START]", "[HINT_END]"


@dataclass(frozen=True)
class Prompt:
    """One prompt. `name` is its file's name and the first 12 hex digits of the SHA-256 of its text, so that a
    judgement shows which wording it answers."""

    name: str
    system: str
    user: str

    @classmethod
    def read(cls, path: Path) -> Prompt:
        """Raises ConfigError for a file that cannot be read or lacks its parts."""
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

    def messages(self, question: JudgeQuestion, longest: int | None = None) -> list[Message]:
        """The chat messages that ask this. Of a response or next state with more than `longest` characters the
        middle is left out."""
        values = {
            "response": shorten(question.response, longest),
            "next_state": shorten(question.next_text, longest),
            "role": question.role,
        }
        asked = _PLACE.sub(lambda place: values[place.group(1)], self.user)
        return [{"role": "system", "content": self.system}, {"role": "user", "content": asked}]


@dataclass(frozen=True)
class PromptSet:
    """The prompts of one judge."""

    eval: Prompt
    hint: Prompt

    @classmethod
    def load(cls, folder: str | None) -> PromptSet:
        """The shipped prompts, each replaced by the file of its name in `folder`. Raises ConfigError, also for
        a folder that has none of them."""
        own = Path(folder).expanduser() if folder else SHIPPED
        files = {name: own / f"{name}.md" for name in ("eval", "hint")}
        if not any(path.is_file() for path in files.values()):
            raise ConfigError(f"--judge-prompt-dir {own} has neither eval.md nor hint.md")
        found = [path if path.is_file() else SHIPPED / path.name for path in files.values()]
        return cls(*map(Prompt.read, found))


def read_eval_vote(reply: str) -> Vote:
    """The last boxed digit of a judge's reply; no box, or another number than 1, -1, 0, is no valid vote."""
    score = _last_boxed(reply)
    return Vote(score=score if score in (1, -1, 0) else None, text=reply)


def read_hint_vote(reply: str) -> Vote:
    """The last boxed digit, 1 or -1, else no valid vote; on 1 the last text between hint markers."""
    score = _last_boxed(reply)
    if score not in (1, -1):
        return Vote(score=None, text=reply)
    return Vote(score=score, text=reply, hint=_last_block(reply) if score == 1 else None)


def shorten(text: str, longest: int | None) -> str:
    """A text of at most about `longest` characters, with a note where its middle was."""
    if longest is None or len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[len(text) - half :]}"


def _last_block(reply: str) -> str | None:
    end = reply.rfind(HINT_END)
    start = reply.rfind(HINT_START, 0, end) if end >= 0 else -1
    return reply[start + len(HINT_START) : end].strip() or None if start >= 0 else None


def _last_boxed(reply: str) -> int | None:
    boxed = _BOXED.findall(reply)
    return int(boxed[-1]) if boxed else None
