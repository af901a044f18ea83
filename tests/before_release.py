"""Which tests wait for `--all`: the groups of before_release.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("before_release.toml")


@dataclass(frozen=True)
class Group:
    """Tests that take long, why they may wait, and the tests that keep watch every time.

    `files`: the folder, or folders, in which an entry `*[case]` holds.
    """

    why: str
    watch: tuple[str, ...]
    tests: tuple[str, ...]
    files: str | tuple[str, ...] = ""

    def holds(self, node: str) -> list[str]:
        """The entries that a test's node id falls under."""
        file, _, name = node.partition("::")
        plain = name.partition("[")[0]
        return [entry for entry in self.tests if self._is(entry, file, name, plain)]

    def _is(self, entry: str, file: str, name: str, plain: str) -> bool:
        if entry.startswith("*"):
            return file.startswith(self.files) and name.endswith(entry[1:])
        return entry in (file, name, plain)


def groups() -> list[Group]:
    """The groups of the table. Raises TypeError for an unknown key, ValueError for a group that no test watches."""
    table = tomllib.loads(FILE.read_text())["group"]
    found = [
        Group(**{key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}) for row in table
    ]
    if unwatched := [group.why for group in found if not group.watch]:
        raise ValueError(f"{FILE.name}: no test keeps watch in {unwatched}")
    return found


def waiting(nodes: Sequence[str]) -> set[str]:
    """The node ids among these that wait for `--all`."""
    table = groups()
    return {node for node in nodes if any(group.holds(node) for group in table)}


def unused(nodes: Sequence[str]) -> list[str]:
    """Entries of the table, those that keep watch included, that name none of these tests."""
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
