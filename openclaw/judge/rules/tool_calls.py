"""Describes a tool call: its tool, its shell command, and whether it changes or only displays something.

A program that displays a file prints other programs' text, so an error in its output is not its own failure. For some
programs, exit code 1 means "no".
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from openclaw.judge.rules.wordings import FOLDER

_NAME = re.compile(r"^([\w.:-]{1,64})\((?=\{)", re.MULTILINE)
_COMMAND_FIELDS = ("command", "cmd", "script")
_SAYS_EVERY_FAILURE = frozenset({"exec", "Bash"})
"""The shell tools of OpenClaw and Claude Code: their results contain an exit code unless it is 0."""
_READERS = re.compile(
    r"(?i)^(?:read|view|cat|open|show|list|ls|glob|grep|search|find|get)(?:_?(?:files?|dirs?|directory|folder|text|many|content))*$"
)
_CELLS = re.compile(
    r"(?i)^(?:execute_|run_)?(?:ipython|python|jupyter|notebook|code)(?:_?(?:cell|code|interpreter|repl))?$"
)
"""Tools that print the result of executed code."""
_PIECE = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|&&|\|\||[;|\n]|[^'\"\\&|;\n]+|.")
_PREFIX = re.compile(
    r"^(?:(?:\w+=\S*|sudo|time|nohup|env|builtin|exec|xargs|command(?= [^-])|(?:timeout|nice)(?: -\S+)* \d\w*)\s+)+"
)
_PROGRAMS = tomllib.loads((FOLDER / "programs.toml").read_text("utf-8"))
_HELP = frozenset({"--help", "--version", "-V"})
_CHANGES = re.compile(r"(?:^|\s)(?:-i\S*|--in-place|-delete|-exec\w*|-d|-D|--delete|-c|--check)(?:\s|$)")


@dataclass(frozen=True)
class Step:
    """One program of a command line. words: the program and its arguments; before: the operator before it."""

    words: tuple[str, ...]
    before: str

    @property
    def program(self) -> str:
        return self.words[0].rsplit("/", 1)[-1]

    @property
    def displays(self) -> bool:
        """Returns whether the program only displays content, and changes nothing."""
        if _HELP & set(self.words):
            return True
        line = " ".join(self.words[1:])
        if self.program in _PROGRAMS["may_change"] and _CHANGES.search(line):
            return False
        if self.program == "curl":
            return any("http_code" in word or "response_code" in word for word in self.words)
        return self.program in _PROGRAMS["looks"] or self._has("looks_with")

    @property
    def asks(self) -> bool:
        """Returns whether exit code 1 means "no" or "different"."""
        return self.program in _PROGRAMS["asks"] or self._has("asks_with")

    @property
    def computes(self) -> bool:
        return self._has("computes_with")

    def _has(self, table: str) -> bool:
        return bool({*_PROGRAMS[table].get(self.program, ())} & {"*", *self.words[1:3]})


@dataclass(frozen=True)
class ToolCall:
    """A tool call. command: the shell command line; "" for other tools."""

    name: str = ""
    command: str = ""
    says_every_failure: bool = False

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return tuple(_steps(self.command))

    @property
    def working(self) -> tuple[Step, ...]:
        """Returns the steps except those that only prepare."""
        return tuple(step for step in self.steps if step.program not in _PROGRAMS["prepares"])

    @property
    def displays(self) -> bool:
        """Returns whether the output is content that the call was to display."""
        if self.command:
            return bool(self.working) and all(step.displays for step in self.working)
        return _READERS.match(self.name) is not None

    @property
    def computes(self) -> bool:
        """Returns whether the output, unless it is a failure, is the result of a computation."""
        if not self.command:
            return _CELLS.match(self.name) is not None
        return bool(self.working) and all(step.computes or step.displays for step in self.working)

    @property
    def shows_texts(self) -> bool:
        """Returns whether a command only prints files, whose text may mention errors."""
        return bool(self.working) and all(step.program in _PROGRAMS["texts"] for step in self.working)

    @property
    def asks(self) -> bool:
        """Returns whether exit code 1 is an answer."""
        if not self.working:
            return False
        return self.working[-1].asks or (self.displays and any(step.asks for step in self.working))

    @property
    def hides_failures(self) -> bool:
        """Returns whether the exit code does not cover every step."""
        return any(step.before in ("|", "||", ";", "\n") for step in self.steps)


def calls_in(response: str) -> list[ToolCall]:
    """Returns the calls at the end of a response, in the format of `question_about`."""
    calls = []
    for match in _NAME.finditer(response):
        try:
            arguments, _ = json.JSONDecoder().raw_decode(response, match.end())
        except (ValueError, RecursionError):
            continue
        fields = [name for name in _COMMAND_FIELDS if arguments.get(name)]
        command = _line_of(arguments[fields[0]]) if fields else ""
        calls.append(ToolCall(match[1], command, match[1] in _SAYS_EVERY_FAILURE and "command" in fields))
    return calls


def _line_of(command: object) -> str:
    if isinstance(command, list):  # ["bash", "-lc", "make test"]
        words = [str(word) for word in command]
        return words[-1] if len(words) > 2 and words[1].startswith("-") else " ".join(words)
    return command if isinstance(command, str) else ""


def _steps(command: str) -> Iterator[Step]:
    before, line = "", ""
    for piece in [*_PIECE.findall(command[:4000]), ";"]:
        if piece not in ("&&", "||", ";", "|", "\n"):
            line += piece
            continue
        words = _PREFIX.sub("", line.strip(" \t()&{}")).split()
        if words:
            yield Step(tuple(words), before)
        before, line = piece, ""
