"""Reads every row of a run's store, and every file, for words that are not there by right."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from claw_lab.benchmarks.crosstalk.words import Findings, Owner, Words, owner_of
from openclaw.store import schema

LOGS = "logs"
OF_TURN = {"turn": "id", "turn_body": "turn_id", "judgement": "turn_id", "feedback": "turn_id"} | {
    "memory": "turn_id", "sample": "turn_id", "dream": "turn_id",
}  # fmt: skip
"""The column with the turn, by table."""


def audit_store(buffer: Path, words: Words, findings: Findings) -> int:
    """Notes rows with words of another person than that of their turn; returns the number of rows with words."""
    place = f"file:{buffer}/buffer.db?mode=ro"
    with contextlib.closing(sqlite3.connect(place, uri=True, isolation_level=None)) as database:
        database.row_factory = sqlite3.Row
        database.execute("BEGIN")  # all tables as of one moment
        owners = {
            row["id"]: owner_of(row["key_name"], row["person"])
            for row in database.execute("SELECT id, key_name, person FROM turn")
        }
        of_sample = dict(database.execute("SELECT id, turn_id FROM sample").fetchall())
        policies = dict(database.execute("SELECT id, policy_id FROM turn").fetchall())
        _check_policies(owners, policies, findings)
        rows = 0
        for table in schema.metadata.sorted_tables:
            for row in database.execute(f"SELECT * FROM {table.name}"):
                if marked := set().union(*map(words.in_column, _columns(row))):
                    rows += 1
                    turn = of_sample.get(row["sample_id"]) if table.name == "token_record" else None
                    turn = turn or (row[OF_TURN[table.name]] if table.name in OF_TURN else None)
                    _check_row(table.name, owners.get(turn or ""), marked, words, findings)
        return rows


def _columns(row: sqlite3.Row) -> Iterator[bytes | str]:
    """Yields the texts and blobs of a row."""
    return (value for value in row if isinstance(value, (bytes, str)))


def _check_row(table: str, owner: Owner | None, marked: set[str], words: Words, findings: Findings) -> None:
    if owner is None:
        findings.add(f"store: {table}", f"a row of no turn has {sorted(marked)}")
    elif wrong := words.of_others(marked, owner) | marked & words.unstored:
        names = ", ".join(sorted(str(words.owners[word]) for word in wrong))
        findings.add(f"store: {table}", f"a row of {owner} has words of {names}")


def _check_policies(owners: dict[str, Owner | None], policies: dict[str, str], findings: Findings) -> None:
    for turn, owner in owners.items():
        expected = f"policy::{owner.adapter}" if owner is not None and owner.adapter else "policy"
        if policies[turn] != expected:
            findings.add("store: policy", f"a turn of {owner} has {policies[turn]}")


def audit_files(run_dir: Path, words: Words, findings: Findings) -> dict[str, int]:
    """Notes words in logs, words of forgotten people, and words that must not be stored, in any file of the run
    folder; returns how many distinct words there are, and how many are left of the forgotten."""
    marked = words.in_folder(run_dir)
    for path, those in marked.items():
        if path.startswith(LOGS):
            findings.add("log", f"{path} has {len(those)} words")
        if those & words.unstored:
            findings.add("file", f"{path} has {len(those & words.unstored)} words of X-Train: off")
        if those & words.gone:
            findings.add("left after forgetting", f"{path} has {sorted(those & words.gone)[:3]}")
    every = set().union(*marked.values())
    return {"words_found": len(every), "left": len(every & words.gone)}
