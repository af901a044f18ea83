"""Small chores in a shell, each with the files that must exist at the end.

Some name their file; in the others it must be found, by a word that only one file contains. File names of held-out
chores occur neither in training chores nor in demonstrations.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

SECONDS = 6.0  # for all calls of an episode; a command that waits for input delays its group no longer
LETTERS, DIGITS = "abcdefghkmnprstuvwxyz", "0123456789"
WORDS = ("red", "blue", "green", "black", "white", "pink", "gold", "gray")


def _copy(files: dict[str, str], source: str, target: str) -> None:
    files[target] = files[source]


def _move(files: dict[str, str], source: str, target: str) -> None:
    files[target] = files.pop(source)


def _sort(files: dict[str, str], source: str, target: str) -> None:
    files[target] = "".join(sorted(files[source].splitlines(keepends=True)))


def _reverse(files: dict[str, str], source: str, target: str) -> None:
    files[target] = "".join(reversed(files[source].splitlines(keepends=True)))


def _count(files: dict[str, str], source: str, target: str) -> None:
    files[target] = f"{len(files[source].splitlines())}\n"


def _delete(files: dict[str, str], source: str, target: str) -> None:
    del files[source]


def _empty(files: dict[str, str], source: str, target: str) -> None:
    files[source] = ""


def _folder(files: dict[str, str], source: str, target: str) -> None:
    files[f"{source}/"] = ""


@dataclass(frozen=True)
class Verb:
    """A kind of chore.

    Attributes:
        asks: with {source} and {target}; {source} is a name, or "the file with WORD".
        command: the command that does it.
        does: its effect on texts by path.
        fails: the shell's output if the source is missing; for a new file, if it exists.
        known: the source is an existing file, so that it can also be searched for.
    """

    asks: str
    command: str
    does: Callable[[dict[str, str], str, str], None]
    fails: str = ""
    known: bool = True

    @property
    def names(self) -> int:
        return 2 if "{target}" in self.asks else 1

    def shown(self, source: str, files: Collection[str]) -> str:
        """Returns the shell's output of the command on `source`."""
        failed = (source in files) != self.known
        return (self.fails.format(source=source) if failed else "") or "[no output]"


MISSING = "No such file or directory\n[exit code 1]"
VERBS = {
    "copy": Verb(
        "copy {source} to {target}", "cp {source} {target}", _copy, f"cp: cannot stat '{{source}}': {MISSING}"
    ),
    "move": Verb(
        "move {source} to {target}", "mv {source} {target}", _move, f"mv: cannot stat '{{source}}': {MISSING}"
    ),
    "sort": Verb(
        "sort {source} into {target}",
        "sort {source} > {target}",
        _sort,
        "sort: cannot read: {source}: No such file or directory\n[exit code 2]",
    ),
    "reverse": Verb(
        "reverse {source} into {target}",
        "tac {source} > {target}",
        _reverse,
        f"tac: failed to open '{{source}}' for reading: {MISSING}",
    ),
    "count": Verb(
        "count lines of {source} into {target}",
        "wc -l < {source} > {target}",
        _count,
        f"bash: line 3: {{source}}: {MISSING}",
    ),
    "delete": Verb("delete {source}", "rm {source}", _delete, f"rm: cannot remove '{{source}}': {MISSING}"),
    "empty": Verb("empty {source}", "truncate -s 0 {source}", _empty),
    "folder": Verb(
        "make folder {source}",
        "mkdir {source}",
        _folder,
        "mkdir: cannot create directory \u2018{source}\u2019: File exists\n[exit code 1]",
        known=False,
    ),
}


@dataclass(frozen=True)
class Chore:
    """One task.

    Attributes:
        source, target: names for its command.
        word: search word of the source; None: it is named.
    """

    verb: str
    source: str
    target: str
    word: str | None
    files: Mapping[str, str]

    @property
    def instruction(self) -> str:
        source = self.source if self.word is None else f"the file with {self.word}"
        return VERBS[self.verb].asks.format(source=source, target=self.target)

    @property
    def commands(self) -> list[str]:
        """Returns the commands that solve the chore."""
        last = VERBS[self.verb].command.format(source=self.source, target=self.target)
        return [last] if self.word is None else [look_for(self.word), last]

    @property
    def expected(self) -> dict[str, str]:
        files = dict(self.files)
        VERBS[self.verb].does(files, self.source, self.target)
        return files

    def row(self) -> dict[str, Any]:
        """Returns a line of a prompt file."""
        about = {
            "task_name": self.instruction,
            "instruction": self.instruction,
            "files": dict(self.files),
            "expected": self.expected,
            "data_source": "chores",
            "agent_seconds": SECONDS,
        }
        return {"task": [{"role": "user", "content": self.instruction}], "metadata": about}


def look_for(word: str) -> str:
    return f"grep -l {word} *"


def is_held_out(name: str) -> bool:
    """Returns whether a name is held out: a fifth of all names, by their hash."""
    return hashlib.sha256(f"terminal-chores:{name}".encode()).digest()[0] < 52


NAMES = [first + letter + last for first in DIGITS for letter in LETTERS for last in DIGITS]
TRAINED_NAMES = [name for name in NAMES if not is_held_out(name)]
HELD_OUT_NAMES = [name for name in NAMES if is_held_out(name)]


def chore(rng: random.Random, held_out: bool = False, looked_for: float = 0.4) -> Chore:
    """Draws a chore of any verb; `looked_for` is the share whose file must be found first, if the verb allows it."""
    verb = rng.choice(list(VERBS))
    first, second, third, fourth = rng.sample(HELD_OUT_NAMES if held_out else TRAINED_NAMES, 4)
    words = rng.sample(WORDS, len(WORDS))
    sought = words.pop()
    files = {f"{name}.txt": _lines(rng, words) for name in (first, second, third)}
    if not VERBS[verb].known:
        return Chore(verb, fourth, "", None, files)
    source = f"{first}.txt"
    files[source] += f"{sought}\n"
    word = sought if rng.random() < looked_for else None
    return Chore(verb, source, f"{fourth}.txt" if VERBS[verb].names == 2 else "", word, files)


def _lines(rng: random.Random, words: list[str]) -> str:
    return "".join(f"{rng.choice(words)}\n" for _ in range(rng.randint(2, 4)))
