"""What a candidate is compared with the live weights on: liked answers, the newest answers, questions of a file."""

from __future__ import annotations

import argparse
import functools
import json
import logging
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from openclaw.errors import ConfigError
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.tokenizer import Tokenizer
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.trainer_hooks import trust
from openclaw.trainer_hooks.batch import sample_dict_of
from openclaw.trainer_hooks.lease import opened_store
from openclaw.types import Turn

logger = logging.getLogger(__name__)

LIKED, RECENT, QUESTION, WISH = "liked", "recent", "question", "wish"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the gate's samples, once."""
    if parser.get_default("gate_liked") is not None:
        return
    group = parser.add_argument_group("gate samples", "What updates are examined on before they go live.")
    group.add_argument(
        "--gate-data",
        type=Path,
        help='JSON lines of questions, {"messages": [...], "answer": "19"}, and of explicit wishes, {"messages": [...], '
        '"form": "^1\\\\."} with a regular expression that an obeying reply matches: a candidate answers them',
    )
    group.add_argument("--gate-liked", type=int, default=8, help="liked answers to compare on, old and new")
    group.add_argument("--gate-recent", type=int, default=8, help="newest answers to compare on")
    group.add_argument(
        "--gate-longest",
        type=int,
        default=4096,
        help="tokens of prompt and answer above which one is left out",
    )


def gate_samples(args: Any, rollout_id: int, version: int) -> list[dict[str, Any]]:
    """For --gate-samples-path: samples whose metadata name their purpose (`gate`) and themselves (`key`).

    Raises:
        ConfigError: --gate-data cannot be read. StoreError: the buffer cannot.
    """
    store = opened_store(args)
    turns = [(LIKED, turn) for turn in _liked(args, store)]
    known = {turn.id for _, turn in turns}
    newest = store.gate_turns.newest(args.gate_recent)
    turns += [(RECENT, turn) for turn in newest if turn.id not in known]
    samples = [_of_turn(purpose, turn) for purpose, turn in turns if _length(turn) <= args.gate_longest]
    if args.gate_data is not None:
        samples += questions(args.gate_data, args.hf_checkpoint)
    return samples


def _liked(args: Any, store: RolloutStore) -> list[Turn]:
    """Nothing that people liked who are not trusted: an update that unlearns it is none to reject."""

    def ask(apart: Collection[Person]) -> list[Turn]:
        return store.gate_turns.liked(args.gate_liked, apart)

    now = trust.Trust.now(args, store) if trust.is_on(args) else None
    return trust.without_those_below(now, ask, lambda found: {turn.person for turn in found})


def _of_turn(purpose: str, turn: Turn) -> dict[str, Any]:
    return {**sample_dict_of(turn), "metadata": {"gate": purpose, "key": turn.id}}


def _length(turn: Turn) -> int:
    return len(turn.prompt_ids) + len(turn.completion_ids)


@functools.lru_cache(maxsize=2)
def questions(path: Path, model_path: str) -> tuple[dict[str, Any], ...]:
    """The rows of a file as prompts of this model, with what each answer must say, or the form of it, as label. A row
    with a system message is left out where the model's template takes none.

    Raises:
        ConfigError: a row that is no question, or a file that cannot be read.
    """
    format_ = ChatFormat(folder := ModelFolder.read(Path(model_path)), Tokenizer(folder.path))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"--gate-data {path}: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            ids = _prompt(format_, row["messages"], bool(row.get("thinking", True)))
            purpose = WISH if "form" in row else QUESTION
            label = re.compile(row["form"]).pattern if "form" in row else str(row["answer"])
        except (ValueError, KeyError, TypeError, IndexError, re.error) as error:
            raise ConfigError(f"--gate-data {path}:{number} is no question: {error!r}") from error
        about = {"gate": purpose, "key": f"{purpose}-{number}"}
        if ids is None:
            logger.info(
                "--gate-data %s:%d is left out: the model's template takes no system message", path, number
            )
            continue
        found.append({"tokens": ids, "response_length": 0, "label": label, "metadata": about})
    return tuple(found)


def _prompt(format_: ChatFormat, messages: list[dict[str, Any]], thinking: bool) -> list[int] | None:
    """None where it is the system message that the template refuses. Raises ValueError for any other refusal."""
    try:
        return format_.render(messages, None, thinking)
    except ValueError:
        others = [one for one in messages if one["role"] != "system"]
        if len(others) == len(messages):
            raise
        format_.render(others, None, thinking)
        return None
