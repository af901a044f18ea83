"""Prompt files: JSON Lines or Parquet, optionally with a slice. Errors name the row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from slime.errors import ConfigError, DataError

SLICE = re.compile(r"^(?P<path>.*)@\[(?P<start>-?\d*):(?P<stop>-?\d*)\]$")
LINES = (".jsonl", ".json", ".ndjson")
PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class PromptFile:
    """A file and the selected rows, as a Python slice (`FILE@[100:200]`, `FILE@[:-50]`)."""

    path: Path
    rows: slice

    @classmethod
    def parse(cls, text: str) -> PromptFile:
        """Parses FILE or FILE@[a:b]. Raises ConfigError if the file is missing or of unknown type, or the
        slice invalid."""
        match = SLICE.match(text)
        if match is None and "@[" in text:
            raise ConfigError(f"{text!r}: the slice after @ must look like [100:200], [:200] or [-200:]")
        path = Path(match["path"] if match else text).expanduser()
        start, stop = (
            (int(part) if part else None for part in (match["start"], match["stop"]))
            if match
            else (None,) * 2
        )
        if not path.is_file():
            raise ConfigError(f"prompt file {path} does not exist")
        if path.suffix not in LINES + PARQUET:
            raise ConfigError(f"{path}: prompts are read from {', '.join(LINES + PARQUET)} files")
        return cls(path, slice(start, stop))

    def read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields (position, row) for each row in the slice.

        Raises:
            DataError: a line is not a JSON object (the message has its number), or a Parquet file cannot be
                read.
        """
        rows = parquet_rows(self.path) if self.path.suffix in PARQUET else json_rows(self.path)
        start, stop = self.rows.start, self.rows.stop
        if (start or 0) < 0 or (stop or 0) < 0:
            return iter(list(rows)[self.rows])
        return islice(rows, start, stop)


def json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, encoding="utf-8") as file:
        lines = enumerate(file, 1)
        while True:
            number = 0
            try:
                number, line = next(lines)
                if not line.strip():
                    continue
                row = json.loads(line)
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}: a line is not UTF-8 ({error.reason} at byte {error.start})"
                ) from error
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{path}:{number}: invalid JSON: {error.msg} at column {error.colno}"
                ) from error
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: must be a JSON object, got {type(row).__name__}")
            yield f"{path}:{number}", row


def parquet_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        batches = pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024)
        number = 0
        for batch in batches:
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", row
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise DataError(f"{path}: cannot read the Parquet file: {error}") from error


@dataclass(frozen=True)
class Columns:
    """The columns of a prompt file by meaning; None: not read."""

    input: str
    label: str | None = None
    metadata: str | None = None
    tools: str | None = None


@dataclass(frozen=True)
class Prompt:
    """The prompt of a sample: a text, or the file's messages."""

    prompt: str | list[dict[str, Any]]
    label: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)


def to_prompt(where: str, row: Mapping[str, object], columns: Columns) -> Prompt:
    """Returns a row's prompt.

    Raises:
        DataError: a column is missing or has the wrong type; the message names the row.
    """
    prompt = _column(where, row, columns.input, "--input-key")
    if isinstance(prompt, list):
        prompt = [_message(where, message) for message in prompt]
    if not prompt or not isinstance(prompt, str | list):
        raise DataError(f"{where}: column {columns.input!r} must be a non-empty text or list of messages")
    label = _column(where, row, columns.label, "--label-key") if columns.label else None
    metadata = _json(where, columns.metadata, row.get(columns.metadata or "") or {})
    if not isinstance(metadata, dict):
        raise DataError(
            f"{where}: column {columns.metadata!r} must be an object, got {type(metadata).__name__}"
        )
    tools = _json(where, columns.tools, row.get(columns.tools or "") or [])
    if not isinstance(tools, list):
        raise DataError(
            f"{where}: column {columns.tools!r} must be a list of tools, got {type(tools).__name__}"
        )
    return Prompt(prompt, label, {**metadata, "tools": tools} if tools else metadata)


def _column(where: str, row: Mapping[str, object], name: str, flag: str) -> Any:
    if row.get(name) is None:
        raise DataError(
            f"{where}: column {name!r} ({flag}) is missing; columns: {', '.join(map(repr, row)) or 'none'}"
        )
    return row[name]


def _json(where: str, column: str | None, value: object) -> Any:
    """Returns a value, parsed if it is JSON text, as is common in Parquet files."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: column {column!r} is not JSON: {error}") from error


def _message(where: str, message: object) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise DataError(f"{where}: a message needs a role and content, got {message!r:.80}")
    return {name: value for name, value in message.items() if value is not None}


def read_prompts(source: str, columns: Columns) -> list[tuple[str, Prompt]]:
    """Returns (position, prompt) of all rows of FILE or FILE@[a:b], at least one.

    Raises:
        ConfigError: the file is missing.
        DataError: a row is invalid, or there are no rows.
    """
    prompts = [(where, to_prompt(where, row, columns)) for where, row in PromptFile.parse(source).read()]
    if not prompts:
        raise DataError(f"{source} contains no prompts")
    return prompts


def as_messages(prompt: str | Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the prompt as messages; a text becomes one user message."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
