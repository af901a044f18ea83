"""Groups in before_release.toml: tests that run only with `--all`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("before_release.toml")


@dataclass(frozen=True)
class Group:
    """A group of long tests, the reason why they may wait, and the tests that always run instead.

    `files`: folders in which an entry `*[case]` applies.
    """

    why: str
    watch: tuple[str, ...]
    tests: tuple[str, ...]
    files: str | tuple[str, ...] = ""

    def holds(self, node: str) -> list[str]:
        """Returns the entries that match a test's node id."""
        file, _, name = node.partition("::")
        plain = name.partition("[")[0]
        return [entry for entry in self.tests if self._is(entry, file, name, plain)]

    def _is(self, entry: str, file: str, name: str, plain: str) -> bool:
        if entry.startswith("*"):
            return file.startswith(self.files) and name.endswith(entry[1:])
        return entry in (file, name, plain)


def groups() -> list[Group]:
    """Returns the groups of the table. Raises TypeError for an unknown key, ValueError for a group without tests that
    always run."""
    table = tomllib.loads(FILE.read_text())["group"]
    found = [
        Group(**{key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}) for row in table
    ]
    if unwatched := [group.why for group in found if not group.watch]:
        raise ValueError(f"{FILE.name}: no test keeps watch in {unwatched}")
    return found


def waiting(nodes: Sequence[str]) -> set[str]:
    """Returns those of the node ids that wait for `--all`."""
    table = groups()
    return {node for node in nodes if any(group.holds(node) for group in table)}


def unused(nodes: Sequence[str]) -> list[str]:
    """Returns entries of the table that match none of these tests."""
    names = {part for node in nodes for part in _names(node)}
    lost = []
    for group in groups():
        used = {entry for node in nodes for entry in group.holds(node)}
        lost += [entry for entry in group.tests if entry not in used]
        lost += [name for name in group.watch if name not in names]
    return lost


def _names(node: str) -> tuple[str, str]:
    name = node.partition("::")[2]
    return name, name.partition("[")[0]
