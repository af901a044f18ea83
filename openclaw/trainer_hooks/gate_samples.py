"""Samples on which the gate compares a candidate with the live weights: liked answers, the newest ones, questions
from a file."""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from claw_base.settings.declare import read
from openclaw.errors import ConfigError
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.tokenizer import Tokenizer
from openclaw.store.shares import Person
from openclaw.trainer_hooks.arguments import GateSampleArguments
from openclaw.trainer_hooks.pipeline import BatchPipeline, pipeline_of
from openclaw.trainer_hooks.rows import Row, sample_dict_of
from openclaw.trainer_hooks.trust import without_untrusted
from openclaw.types import Message, Turn

logger = logging.getLogger(__name__)

LIKED, RECENT, QUESTION, WISH, FACT = "liked", "recent", "question", "wish", "fact"


FLAGS = (GateSampleArguments,)


def gate_samples(args: object, rollout_id: int, version: int) -> list[Row]:
    """For --gate-samples-path: returns samples whose metadata contain their purpose (`gate`) and id (`key`).

    Raises:
        ConfigError: --gate-data cannot be read.
        StoreError: the buffer cannot.
    """
    pipeline, arguments = pipeline_of(args), read(GateSampleArguments, args)
    turns = [(LIKED, turn) for turn in _liked(pipeline, arguments.gate_liked)]
    known = {turn.id for _, turn in turns}
    trainer = pipeline.settings.buffer.trainer_id
    newest = pipeline.store.gate_turns.newest(arguments.gate_recent, trainer)
    turns += [(RECENT, turn) for turn in newest if turn.id not in known]
    short = [(purpose, turn) for purpose, turn in turns if _length(turn) <= arguments.gate_longest]
    if len(short) < len(turns):
        logger.warning(
            "the gate compares update %d on %d of %d answers: the others have more than %d tokens with their prompts "
            "(--gate-longest)",
            rollout_id, len(short), len(turns), arguments.gate_longest,
        )  # fmt: skip
    pictures = pipeline.store.pictures.urls_of([turn for _, turn in short])
    samples = [_of_turn(purpose, turn, pictures) for purpose, turn in short]
    if arguments.gate_data is not None:
        samples += questions(arguments.gate_data, pipeline.settings.trainer.hf_checkpoint)
    if arguments.gate_facts is not None:
        samples += questions(arguments.gate_facts, pipeline.settings.trainer.hf_checkpoint, FACT)
    return samples


def _liked(pipeline: BatchPipeline, count: int) -> list[Turn]:
    """Returns answers that trusted people liked: forgetting what others liked is no reason to reject an update."""

    def ask(excluded: Collection[Person]) -> list[Turn]:
        trainer = pipeline.settings.buffer.trainer_id
        return pipeline.store.gate_turns.liked(count, excluded, trainer)

    trust = None if pipeline.exclusion is None else pipeline.exclusion.trust_now()
    return without_untrusted(trust, ask, lambda liked: {turn.person for turn in liked})


def _of_turn(purpose: str, turn: Turn, pictures: Mapping[str, str]) -> Row:
    return {**sample_dict_of(turn, pictures), "metadata": {"gate": purpose, "key": turn.id}}


def _length(turn: Turn) -> int:
    return len(turn.prompt_ids) + len(turn.completion_ids)


@functools.lru_cache(maxsize=4)
def questions(path: Path, model_path: str, what: str = QUESTION) -> tuple[Row, ...]:
    """Returns the rows of a file as prompts of this model, with the required content or form of each answer as label.
    A row with a system message is skipped if the model's template does not support one.

    Args:
        what: what a row with an answer is for.

    Raises:
        ConfigError: a row that is no question, or a file that cannot be read.
    """
    flag = "--gate-facts" if what == FACT else "--gate-data"
    format_ = ChatFormat(folder := ModelFolder.read(Path(model_path)), Tokenizer(folder.path))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{flag} {path}: {error.strerror}") from error
    samples = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            ids = _prompt(format_, row["messages"], bool(row.get("thinking", True)))
            purpose = WISH if "form" in row else what
            label = re.compile(row["form"]).pattern if "form" in row else str(row["answer"])
            most = {"tokens": int(row["tokens"])} if "tokens" in row else {}
        except (ValueError, KeyError, TypeError, IndexError, re.error) as error:
            raise ConfigError(f"{flag} {path}:{number} is not a question: {error!r}") from error
        about = {"gate": purpose, "key": f"{purpose}-{number}", **most}
        if ids is None:
            logger.info(
                "%s %s:%d is left out: the model's template takes no system message", flag, path, number
            )
            continue
        samples.append({"tokens": ids, "response_length": 0, "label": label, "metadata": about})
    return tuple(samples)


def _prompt(format_: ChatFormat, messages: list[Message], thinking: bool) -> list[int] | None:
    """Returns None if the template rejects the system message. Raises ValueError for any other error.

    Without `thinking`, reasoning that the template opens nevertheless is closed at once: otherwise every answer would end
    inside it.
    """
    try:
        ids = format_.render(messages, None, thinking)
    except ValueError:
        others = [one for one in messages if one["role"] != "system"]
        if len(others) == len(messages):
            raise
        format_.render(others, None, thinking)
        return None
    marks = format_.family.reasoning
    if marks is not None and not thinking and marks.is_open_after(ids):
        ids += [marks.close_id, *format_.tokenizer.encode("\n\n")]
    return ids
