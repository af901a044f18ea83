"""The tokens of an answer, with their weight versions, training values and display colours."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from openclaw.formats.tokenizer import Tokenizer
from openclaw.store import RolloutStore
from openclaw.views.texts import token_text
from openclaw.views.turn import find

Json = dict[str, Any]
By = Literal["advantage", "gap", "version", "teacher", "surprise"]

LEVELS: dict[str, tuple[float, ...]] = {
    "advantage": (1e-6, 0.25, 0.75, 1.5),
    "gap": (0.001, 0.01, 0.1, 0.5),
    "teacher": (0.02, 0.1, 0.5, 2.0),
    "surprise": (0.5, 1.5, 3.0, 6.0),
}
"""Absolute values at which a token gets the next stronger colour; advantages have no unit, the others are in nats."""
NAMES = {
    "advantage": "advantage: training makes the token more (+) or less (−) likely",
    "gap": "log-prob gap: trainer minus engine",
    "version": "weight version that sampled the token",
    "teacher": "teacher disagreement: difference to the log-prob with the hint in the prompt",
    "surprise": "surprise: negative log-prob at sampling",
}
COLOURS = 6
"""Number of colours for weight versions; further versions reuse them."""
MOST_RUNS = 200


@dataclass(frozen=True)
class ShownToken:
    """A token for display. `kind`: its CSS class; `about`: its values as text."""

    text: str
    kind: str
    about: str


def tokens(store: RolloutStore, tokenizer: Tokenizer | None, completion_id: str) -> Json:
    """Returns the values of an answer's tokens, as lists with one entry a token; training values are None before
    training.

    Raises ClientError (404).
    """
    turn = find(store, completion_id)
    ids = turn.completion_ids
    count = len(ids)
    versions: list[int | None] = [None] * count
    for version, start, end in turn.version_spans:
        versions[start:end] = [version] * len(versions[start:end])
    record: Json = store.token_records.of_turn(turn.id) or {}
    trainer, engine = record.get("log_prob"), turn.completion_log_probs
    return {
        "object": "tokens",
        "completion_id": turn.completion_id,
        "ids": ids,
        "texts": None if tokenizer is None else [token_text(tokenizer.token_bytes(one)) for one in ids],
        "log_probs": engine,
        "versions": versions,
        "trained_from_version": record.get("version"),
        "advantage": _fitting(record.get("advantage"), count),
        "trainer_log_probs": _fitting(trainer, count),
        "gap": None if engine is None else _difference(_fitting(trainer, count), engine),
        "teacher": _fitting(record.get("teacher_gap"), count),
        "hint": _fitting(record.get("hint"), count),
    }


def strip(recorded: Json, by: By) -> list[ShownToken]:
    """Returns the tokens for display, coloured by one of their values."""
    texts = recorded["texts"] or [f"{one} " for one in recorded["ids"]]
    values = values_of(recorded, by)
    first = {version: number for number, version in enumerate(dict.fromkeys(recorded["versions"]))}
    rows = []
    for index, text in enumerate(texts):
        if by == "version":
            kind = f"v{first[recorded['versions'][index]] % COLOURS}"
        else:
            kind = _kind(None if values is None else values[index], LEVELS[by])
        rows.append(ShownToken(text or f"⟨{recorded['ids'][index]}⟩", kind, _about(recorded, index)))
    return rows


def runs(recorded: Json, by: By, rows: list[ShownToken]) -> list[Json]:
    """Returns runs of tokens with one colour as `{"start", "end", "text", "mean"}`, for screen readers.

    `rows`: the displayed tokens.
    """
    values: Sequence[float | None] | None = (
        recorded["versions"] if by == "version" else values_of(recorded, by)
    )
    parts = []
    for _, group in groupby(range(len(rows)), key=lambda index: rows[index].kind):
        indexes = list(group)
        known = [] if values is None else [v for i in indexes if (v := values[i]) is not None]
        text = "".join(rows[index].text for index in indexes)
        mean = sum(known) / len(known) if known else None
        parts.append({"start": indexes[0], "end": indexes[-1], "text": text, "mean": mean})
        if len(parts) == MOST_RUNS:
            break
    return parts


def values_of(recorded: Json, by: By) -> Sequence[float | None] | None:
    """Returns the values for a colouring, one number a token; None if this turn has none."""
    if by == "surprise":
        return None if recorded["log_probs"] is None else [-value for value in recorded["log_probs"]]
    values: Sequence[float | None] | None = recorded["versions" if by == "version" else by]
    return values


def known(recorded: Json) -> list[By]:
    """Returns the colourings for which these tokens have values, most informative first."""
    order: tuple[By, ...] = ("advantage", "teacher", "gap", "version", "surprise")
    return [by for by in order if values_of(recorded, by) is not None]


def _kind(value: float | None, levels: Sequence[float]) -> str:
    if value is None:
        return "n"
    return f"{'m' if value < 0 else 'p'}{bisect_right(levels, abs(value))}"


def _about(recorded: Json, index: int) -> str:
    parts = [f"{index + 1} of {len(recorded['ids'])}", f"id {recorded['ids'][index]}"]
    for name, label in (
        ("log_probs", "log-prob"),
        ("advantage", "advantage"),
        ("gap", "gap"),
        ("teacher", "teacher"),
    ):
        values = recorded[name]
        if values is not None and values[index] is not None:
            parts.append(f"{label} {values[index]:.3g}")
    if recorded["hint"] is not None and recorded["hint"][index] is not None:
        parts.append(f"hint {recorded['hint'][index] + 1}")
    if recorded["versions"][index] is not None:
        parts.append(f"v{recorded['versions'][index]}")
    return ", ".join(parts)


def _fitting(values: Any, count: int) -> list[float | None] | None:
    """Returns the values of a training step if there is one for each token, else None."""
    return values if isinstance(values, list) and len(values) == count else None


def _difference(trainer: list[float | None] | None, engine: list[float]) -> list[float | None] | None:
    if trainer is None:
        return None
    return [None if a is None else a - b for a, b in zip(trainer, engine, strict=True)]
