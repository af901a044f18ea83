"""Edits settings files in JSON, TOML and YAML, and undoes the edits.

Values are set by their paths. TOML and YAML are edited line by line, so that comments and order stay. The result is
parsed again, and written only if it has the expected values.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from openclaw.errors import ConfigError

_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT = re.compile(r"\s+#[^\"']*\Z")
Leaf = tuple[tuple[str, ...], Any]
Path_ = tuple[str, ...]
Values = Mapping[Path_, Any]
Config = dict[str, Any]

ABSENT = {"absent": True}
"""Marks a missing value in notes."""


class NotEditable(ConfigError):
    """The file cannot be changed without losing content."""


def parse(text: str, form: str) -> Config:
    """Returns the parsed text. Raises NotEditable if it is invalid or is JSON with comments."""
    try:
        if form == "json":
            content = json.loads(text) if text.strip() else {}
        else:
            content = tomllib.loads(text) if form == "toml" else yaml.safe_load(text) or {}
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise NotEditable(f"it is not valid {form.upper()}: {str(error).splitlines()[0]}") from error
    if not isinstance(content, dict):
        raise NotEditable("its top-level value is not a mapping")
    return content


def edit(text: str, form: str, new: Config) -> str:
    """Returns the text changed so that its content is `new`. Raises NotEditable."""
    old = parse(text, form)
    if form == "json":
        return text if new == old else json.dumps(new, indent=2, ensure_ascii=False) + "\n"
    lines = _Lines(text, form)
    before, after = dict(_leaves(old)), dict(_leaves(new))
    for path in [path for path in before if path not in after]:
        lines.remove(path)
    for path, value in after.items():
        if path not in before or before[path] != value:
            lines.put(path, value)
    edited = lines.text()
    try:
        right = parse(edited, form) == new
    except NotEditable:
        right = False
    if not right:
        raise NotEditable(f"its {form.upper()} syntax does not allow changes line by line")
    return edited


def _leaves(config: Config, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


class _Lines:
    """The lines of a file. Sections are tables in TOML, and blocks below top-level keys in YAML."""

    def __init__(self, text: str, form: str) -> None:
        self._toml = form == "toml"
        self._lines = text.removesuffix("\n").split("\n") if text else []

    def text(self) -> str:
        return "\n".join(self._lines) + "\n" if self._lines else ""

    def put(self, path: tuple[str, ...], value: Any) -> None:
        """Sets a value: replaces its line, or adds one to its section."""
        start, end = self._section(path[:-1])
        at = self._line_of(path[-1], start, end)
        if at is not None:
            old = self._lines[at]
            comment = _COMMENT.search(old)
            self._lines[at] = _indent(old) + self._line(path[-1], value) + (comment[0] if comment else "")
            return
        written = [index for index in range(start, end) if _has_content(self._lines[index])]
        inner = "" if self._toml or not path[:-1] else "  "
        inner = _indent(self._lines[written[0]]) if written else inner
        self._lines.insert(written[-1] + 1 if written else start, inner + self._line(path[-1], value))

    def remove(self, path: tuple[str, ...]) -> None:
        """Removes a value, and its section if that becomes empty."""
        start, end = self._section(path[:-1])
        at = self._line_of(path[-1], start, end)
        if at is None:
            return
        self._lines.pop(at)
        if path[:-1] and not any(line.strip() for line in self._lines[start : end - 1]):
            del self._lines[start - 1 : end - 1]
            if self._toml and start >= 2 and not self._lines[start - 2].strip():
                self._lines.pop(start - 2)

    def _section(self, path: tuple[str, ...]) -> tuple[int, int]:
        """Returns the first line after the header of a section, and the line after its last one.

        A missing section is appended.
        """
        if not path:
            ends = (
                index
                for index, line in enumerate(self._lines)
                if self._toml and line.lstrip().startswith("[")
            )
            return 0, next(ends, len(self._lines))
        head = next((index for index, line in enumerate(self._lines) if self._is_head(line, path)), None)
        if head is None:
            if self._toml and self._lines and self._lines[-1].strip():
                self._lines.append("")
            self._lines.append("[" + ".".join(map(_name, path)) + "]" if self._toml else f"{_name(path[0])}:")
            return len(self._lines), len(self._lines)
        rest = range(head + 1, len(self._lines))
        return head + 1, next((index for index in rest if self._ends(self._lines[index])), len(self._lines))

    def _is_head(self, line: str, path: tuple[str, ...]) -> bool:
        try:
            read = parse(line.strip() + "\n" if self._toml else line, "toml" if self._toml else "yaml")
        except NotEditable:
            return False
        if self._toml:
            head: Any = {}
            for name in reversed(path):
                head = {name: head}
            return line.lstrip().startswith("[") and read == head
        return not line[:1].isspace() and list(read) == [path[0]]

    def _ends(self, line: str) -> bool:
        if self._toml:
            return line.lstrip().startswith("[")
        return bool(line.strip()) and not line[0].isspace() and not line.startswith("#")

    def _line_of(self, name: str, start: int, end: int) -> int | None:
        mark = "=" if self._toml else ":"
        quoted = rf"\s*[\"']?{re.escape(name)}[\"']?\s*{mark}"
        return next((index for index in range(start, end) if re.match(quoted, self._lines[index])), None)

    def _line(self, name: str, value: Any) -> str:
        """Returns a line with a value; strings, numbers and booleans have JSON syntax, which is also valid TOML and
        YAML."""
        return f"{_name(name)}{' = ' if self._toml else ': '}{json.dumps(value, ensure_ascii=False)}"


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _has_content(line: str) -> bool:
    """Returns whether a line is neither empty nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _name(name: str) -> str:
    return name if _KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def put_in(config: Config, values: Values) -> tuple[Config, list[list[Any]]]:
    """Returns the new content, and notes of the earlier values: (path, value or ABSENT), in the order of the changes."""
    new, before = copy.deepcopy(config), []
    for path, value in values.items():
        here = new
        for depth, name in enumerate(path[:-1], 1):
            if not isinstance(here.get(name), dict):
                before.append([list(path[:depth]), here.get(name, ABSENT)])
                here[name] = {}
            here = here[name]
        before.append([list(path), copy.deepcopy(here.get(path[-1], ABSENT))])
        here[path[-1]] = value
    return new, before


def take_out(config: Config, values: Values, before: list[list[Any]]) -> tuple[Config, list[str]]:
    """Returns the previous content, and the names of values that were changed by others meanwhile, which are kept."""
    new, kept = copy.deepcopy(config), []
    for path, old in reversed(before):
        here = _parent(new, path)
        name = path[-1]
        if here is None or name not in here:
            continue
        ours = values.get(tuple(path), {})  # objects that were created for the values are empty by now
        if here[name] != ours:
            kept += [".".join(path)] if tuple(path) in values else []
        elif old == ABSENT:
            here.pop(name)
        else:
            here[name] = old
    return new, kept


def _parent(config: Config, path: list[str]) -> Config | None:
    here: Any = config
    for name in path[:-1]:
        here = here.get(name) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else None
