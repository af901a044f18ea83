"""The protocol of a judge, and which ones there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from zipfile import BadZipFile

from openclaw.errors import ConfigError
from openclaw.judge.backends.prompts import PromptSet
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import RulesBackend
from openclaw.judge.sentences.encoder import is_installed
from openclaw.judge.settings import SERVED, JudgeSettings
from openclaw.types import Vote


class JudgeBackend(Protocol):
    """Gives votes on a question. Called concurrently; the caller limits time and number."""

    @property
    def name(self) -> str:
        """Stored with each judgement."""

    @property
    def prompt_name(self) -> str:
        """Name and hash of the prompt for a score; stored with each judgement."""

    @property
    def hint_prompt_name(self) -> str:
        """Name and hash of the prompt for a hint."""

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        """m votes; a vote that failed has no score. Raises JudgeError when none can be had."""

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        """m votes on whether the next state holds a hint; a vote for one has it."""

    async def close(self) -> None:
        """Closes what it holds open."""


def make_backend(settings: JudgeSettings, metrics: JudgeMetrics) -> JudgeBackend:
    """The judge that the settings name. To be called in a running event loop. Raises ConfigError for a name that
    no backend has, and for prompts or a model that cannot be used."""
    name = settings.judge_backend
    if name not in BACKENDS:
        raise ConfigError(f"there is no judge backend {name!r}; known: {', '.join(BACKENDS)}")
    return BACKENDS[name](settings, metrics)


def _rules(settings: JudgeSettings, metrics: JudgeMetrics) -> JudgeBackend:
    if settings.judge_embeddings == "on" or (settings.judge_embeddings == "auto" and is_installed()):
        return _sentences(settings.judge_head)
    if not settings.judge_reader_url:
        return RulesBackend()
    from openclaw.formats.tokenizer import Tokenizer  # the rules alone do not need it
    from openclaw.judge.reader.backend import ReadingBackend
    from openclaw.judge.reader.reader import Reader

    if SERVED in settings.judge_reader_url:
        raise ConfigError(
            f"--judge-reader-url {SERVED} is for a training run; name the URL of an engine here"
        )
    folder = Path(str(settings.judge_reader_model)).expanduser()
    return ReadingBackend(Reader(settings.judge_reader_url, Tokenizer(folder)))


def _sentences(path: str | None) -> JudgeBackend:
    from openclaw.judge.sentences.backend import SentenceBackend
    from openclaw.judge.sentences.encoder import Encoder
    from openclaw.judge.sentences.head import SHIPPED, Head

    file = Path(path).expanduser() if path else SHIPPED
    try:
        return SentenceBackend(Head(Encoder(), file))
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
        why = error.strerror if isinstance(error, OSError) else "no head of this version"
        raise ConfigError(
            f"--judge-head {file}: {why}; make one with python -m openclaw.judge.learned"
        ) from error


def _openai(settings: JudgeSettings, metrics: JudgeMetrics) -> JudgeBackend:
    from openclaw.judge.backends.openai import OpenAIBackend

    return OpenAIBackend(settings, PromptSet.load(settings.judge_prompt_dir), metrics)


def _engine(settings: JudgeSettings, metrics: JudgeMetrics) -> JudgeBackend:
    from openclaw.judge.backends.engine import (
        EngineBackend,
    )  # imports tokenizers, which other judges do not need

    return EngineBackend(settings, PromptSet.load(settings.judge_prompt_dir), metrics)


BACKENDS: Mapping[str, Callable[[JudgeSettings, JudgeMetrics], JudgeBackend]] = {
    "rules": _rules,
    "engine": _engine,
    "openai": _openai,
}
"""By the name in --judge-backend; `BACKEND_NAMES` of the settings lists the same."""
