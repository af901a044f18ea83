"""One line of a file to be judged: converts JSON text to a question, and votes to JSON text."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from openclaw.errors import JudgeError
from openclaw.judge.backends.base import JudgeBackend
from openclaw.judge.hints import find_hints
from openclaw.judge.questions import JudgeQuestion, majority_score
from openclaw.judge.settings import JudgeSettings


class BadLine(Exception):
    """An invalid line, or one that the judge could not judge."""


class Line(BaseModel):
    """The fields of a line; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    id: str | int | None = None
    response: str
    next_state: str | list[dict[str, Any]] = Field(min_length=1)
    next_state_role: Literal["user", "tool"] = "user"
    messages: list[dict[str, Any]] = Field(default_factory=list)

    @field_validator("next_state", "messages")
    @classmethod
    def _messages_have_roles(cls, value: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        for index, message in enumerate(value if isinstance(value, list) else ()):
            if not isinstance(message.get("role"), str):
                raise ValueError(f"message {index} has no role; write user, assistant or tool")
        return value

    @classmethod
    def parse(cls, text: str | bytes) -> Line:
        """Parses a line. Raises BadLine."""
        try:
            return cls.model_validate(orjson.loads(text))
        except orjson.JSONDecodeError as error:
            raise BadLine(f"not JSON: {error}") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise BadLine(f"{place}: {first['msg']}" if place else first["msg"]) from error

    def question(self) -> JudgeQuestion:
        if isinstance(self.next_state, str):
            state: list[dict[str, Any]] = [{"role": self.next_state_role, "content": self.next_state}]
            role = self.next_state_role
        else:
            state = self.next_state
            role = "user" if any(message.get("role") == "user" for message in state) else "tool"
        return JudgeQuestion(response=self.response, next_state=state, role=role, messages=self.messages)


class LineScorer:
    """Scores lines with one judge; `hint`: also request hints."""

    def __init__(self, backend: JudgeBackend, settings: JudgeSettings, hint: bool) -> None:
        self._backend = backend
        self._settings = settings
        self._hint = hint

    async def score(self, text: str, number: int) -> str:
        """Returns the output line. A line without an id gets its number. Raises BadLine."""
        line = Line.parse(text)
        question, m = line.question(), self._settings.prm_m
        try:
            async with asyncio.timeout(self._settings.judge_timeout):
                votes = await self._backend.eval_votes(question, m)
                hint_votes = await self._backend.hint_votes(question, m) if self._hint else []
        except TimeoutError as error:
            raise BadLine(f"no score in {self._settings.judge_timeout:g} s") from error
        except JudgeError as error:
            raise BadLine(f"the judge failed: {error}") from error
        if all(vote.score is None for vote in votes):
            raise BadLine(f"none of {len(votes)} votes is valid")
        hints = find_hints(hint_votes, self._settings.judge_hint_max_chars).hints
        result = {
            "id": number if line.id is None else line.id,
            "score": majority_score(votes, self._settings.majority_vote_threshold),
            "hint": hints[-1] if hints else None,
            "hints": hints,
            "votes": [{"score": vote.score, "text": vote.text} for vote in votes],
        }
        return orjson.dumps(result).decode()
