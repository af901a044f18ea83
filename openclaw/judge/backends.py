"""The protocol of a judge, and which ones there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from openclaw.errors import ConfigError
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules import RulesBackend
from openclaw.records import Vote


class JudgeBackend(Protocol):
    """Gives votes on a question. Called concurrently; the caller limits time and number."""

    @property
    def name(self) -> str:
        """Stored with each judgement."""

    @property
    def prompt_name(self) -> str:
        """What was asked, by name; stored with each judgement."""

    async def eval_votes(self, question: JudgeQuestion, m: int) -> list[Vote]:
        """m votes; a vote that failed has no score. Raises JudgeError when none can be had."""


BACKENDS: dict[str, Callable[[], JudgeBackend]] = {"rules": RulesBackend}


def make_backend(name: str) -> JudgeBackend:
    """Raises ConfigError for a name that is not in BACKENDS."""
    if name not in BACKENDS:
        raise ConfigError(f"unknown judge backend {name!r}: choose one of {', '.join(sorted(BACKENDS))}")
    return BACKENDS[name]()
