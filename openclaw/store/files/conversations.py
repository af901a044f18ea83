"""Reads conversation files: JSON or JSON lines of {"session_id", "turns": [{"type", "prompt", "response",
"next_state", "trainable"}]}.

Files are validated completely before use. A folder stands for all its .json and .jsonl files.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from openclaw.errors import StoreError
from openclaw.store.files.jsonl import first_problem


class ConversationTurn(BaseModel):
    """One question and its answer.

    The main turns of a session form one conversation. A side turn is independent of it, and never trained.

    Attributes:
        next_state: the message after the answer; None for the prompt of the next main turn.
        next_state_role: role of `next_state`.
        trainable: None for true in a main turn, and false in a side turn.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["main", "side"] = "main"
    prompt: str = Field(min_length=1)
    response: str = Field(min_length=1)
    next_state: str | None = None
    next_state_role: Literal["user", "tool"] = "user"
    trainable: bool | None = None

    @model_validator(mode="after")
    def _side_is_not_trained(self) -> ConversationTurn:
        if self.type == "side" and self.trainable:
            raise ValueError(
                "trainable: a side turn cannot be trained; set trainable to false, or type to main"
            )
        return self


class Conversation(BaseModel):
    """A session with its turns in order, and the name of the user, if known."""

    model_config = ConfigDict(extra="forbid", strict=True)

    session_id: str = Field(min_length=1)
    person: str | None = None
    turns: list[ConversationTurn] = Field(min_length=1)


def read_conversations(path: Path) -> list[tuple[str, Conversation]]:
    """Returns the conversations of a file or folder, each with its position for error messages.

    Raises:
        StoreError: a conversation is invalid, or its session id is not unique. The error names file, line (or number)
            and field.
    """
    conversations: list[tuple[str, Conversation]] = []
    seen: dict[str, str] = {}
    for file in _files(path):
        for where, value in _values(file):
            try:
                conversation = Conversation.model_validate(value)
            except ValidationError as error:
                raise StoreError(f"{where}: {first_problem(error)}") from error
            id_ = conversation.session_id
            if id_ in seen:
                raise StoreError(f"{where}: session_id: {id_!r} is already used in {seen[id_]}")
            seen[id_] = where
            conversations.append((where, conversation))
    return conversations


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in (".json", ".jsonl"))
    if not files:
        raise StoreError(f"{path}: the folder contains no .json or .jsonl file")
    return files


def _values(file: Path) -> Iterator[tuple[str, Any]]:
    """Yields position and JSON value of every conversation in a file: one value, a list, or one value per line."""
    try:
        data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error.strerror}") from error
    try:
        whole = orjson.loads(data)
    except orjson.JSONDecodeError:
        yield from _values_by_line(file, data)
        return
    if isinstance(whole, list):
        for number, value in enumerate(whole, 1):
            yield f"{file} conversation {number}", value
    else:
        yield f"{file} line 1", whole


def _values_by_line(file: Path, data: bytes) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"{file} line {number}", orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise StoreError(f"{file} line {number}: not valid JSON: {error}") from error
