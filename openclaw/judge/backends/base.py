"""The protocol of a judge backend, and the list of backends."""

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
    """Votes on questions. Called concurrently; the caller limits time and concurrency."""

    @property
    def name(self) -> str:
        """Name that is stored with each judgement."""

    @property
    def prompt_name(self) -> str:
        """Returns name and hash of the prompt for scores; stored with each judgement."""

    @property
    def hint_prompt_name(self) -> str:
        """Returns name and hash of the prompt for hints."""

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        """Returns m votes; a failed vote has no score. Raises JudgeError if there are none."""

    async def hint_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        """Returns m votes on whether the next state contains a hint; a vote for one includes it."""

    async def close(self) -> None:
        """Closes connections."""


def make_backend(settings: JudgeSettings, metrics: JudgeMetrics) -> JudgeBackend:
    """Returns the configured judge. Must be called in a running event loop. Raises ConfigError for an unknown name,
    and for prompts or a model that cannot be used."""
    name = settings.judge_backend
    if name not in BACKENDS:
        raise ConfigError(f"there is no judge backend {name!r}; known: {', '.join(BACKENDS)}")
    return BACKENDS[name](settings, metrics)


def _rules(settings: JudgeSettings, metrics: JudgeMetrics) -> JudgeBackend:
    if settings.judge_embeddings == "on" or (settings.judge_embeddings == "auto" and is_installed()):
        return _sentences(settings.judge_head)
    if not settings.judge_reader_url:
        return RulesBackend()
    from openclaw.formats.tokenizer import Tokenizer  # the rules backend does not need it
    from openclaw.judge.reader.backend import ReadingBackend
    from openclaw.judge.reader.reader import Reader

    if SERVED in settings.judge_reader_url:
        raise ConfigError(
            f"--judge-reader-url {SERVED} works only in a training run; give the URL of an engine here"
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
        why = error.strerror if isinstance(error, OSError) else "not a head file of this version"
        raise ConfigError(
            f"--judge-head {file}: {why}; make one with python -m openclaw.judge.learned"
        ) from error


def _openai(settings: JudgeSettings, metrics: JudgeMetrics) -> JudgeBackend:
    from openclaw.judge.backends.openai import OpenAIBackend

    return OpenAIBackend(settings, PromptSet.load(settings.judge_prompt_dir), metrics)


def _engine(settings: JudgeSettings, metrics: JudgeMetrics) -> JudgeBackend:
    from openclaw.judge.backends.engine import (
        EngineBackend,
    )  # imports tokenizers, which other backends do not need

    return EngineBackend(settings, PromptSet.load(settings.judge_prompt_dir), metrics)


BACKENDS: Mapping[str, Callable[[JudgeSettings, JudgeMetrics], JudgeBackend]] = {
    "rules": _rules,
    "engine": _engine,
    "openai": _openai,
}
"""Constructors by the name in --judge-backend; `BACKEND_NAMES` of the settings lists the same names."""
