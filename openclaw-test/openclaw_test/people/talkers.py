"""Plays the person: a language model behind an OpenAI-compatible API, or a script."""

from __future__ import annotations

import random
import re
from typing import Protocol

import httpx

from openclaw_test.people.gsm8k import WordProblem
from openclaw_test.people.phases import Phase
from openclaw_test.people.preferences import assess
from openclaw_test.people.scripted_user import thanks
from openclaw_test.people.tastes import COMPLAINTS

Exchange = tuple[str, str]
"""(the person's message, the assistant's answer)"""

_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
SECONDS = 180.0
_UNHAPPY = {"student": "formatted", "TA": "short", "teacher": "cold"}


class TalkerError(RuntimeError):
    """The person's model cannot be reached."""


class Talker(Protocol):
    """Returns the person's next message; the phase's sentinel when the person is done."""

    def next(self, phase: Phase, problem: WordProblem, talk: list[Exchange]) -> str: ...


class ModelTalker:
    """A language model. The roles are swapped: it is the assistant, and the agent's replies are its user's
    messages."""

    def __init__(self, base_url: str, api_key: str, model: str) -> None:
        self._http = httpx.Client(
            base_url=base_url.rstrip("/"), timeout=SECONDS, headers={"Authorization": f"Bearer {api_key}"}
        )
        self._model = model

    def next(self, phase: Phase, problem: WordProblem, talk: list[Exchange]) -> str:
        """Returns the next message. Raises TalkerError."""
        messages = [{"role": "system", "content": phase.persona}]
        for message, answer in talk:
            messages.append({"role": "assistant", "content": message})
            messages.append({"role": "user", "content": f"The AI assistant replied:\n{answer}"})
        try:
            response = self._http.post("/chat/completions", json={"model": self._model, "messages": messages})
            response.raise_for_status()
            text = str(response.json()["choices"][0]["message"]["content"] or "")
        except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
            raise TalkerError(f"the person's model at {self._http.base_url} failed: {error}") from error
        return _THINKING.sub("", text).strip()


class ScriptedTalker:
    """A script that uses the scoring detectors: complains in known words, thanks when satisfied, and then is done. It
    needs no model."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = random.Random(f"scripted talker {seed}")
        self._thanks: set[str] = set()

    def next(self, phase: Phase, problem: WordProblem, talk: list[Exchange]) -> str:
        if talk and talk[-1][0] in self._thanks:
            return phase.sentinel
        reply = assess(phase.name, problem, talk[-1][1])
        if reply.content:
            message = thanks(self._rng)
            self._thanks.add(message)
            return message
        flaw = _UNHAPPY[phase.name] if not reply.manners else "lost steps" if reply.right else "wrong"
        return self._rng.choice(COMPLAINTS[flaw])
