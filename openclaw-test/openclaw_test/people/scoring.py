"""Scores the first replies of a phase in the paper's two ways.

v1: an evaluator model gives each first reply one of five levels, the mean of several votes. v2: detectors check it
against the person's preference; the number of sessions until three in a row pass.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from openclaw_test.people.gsm8k import WordProblem
from openclaw_test.people.preferences import Reply, assess, sessions_to_three

LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)
NEAR = 0.15
_HEAD = re.compile(r"^\[session: ([\w-]+?)-(\d+)-\d+\]$", re.MULTILINE)
_BOXED = re.compile(r"\\boxed\{\s*(-?\d*\.?\d+)\s*\}")
_WANTS = {
    "student": "natural prose as a person writes it, no markdown and no lists, with every step of the calculation",
    "TA": "comments that are detailed and specific about each step, in prose",
    "teacher": "a friendly, patient and specific comment, in prose",
}
SECONDS = 120.0


@dataclass(frozen=True)
class Summary:
    """Shares of all sessions; `level` is v1's mean, None without an evaluator; `sessions_to_three` is v2's."""

    person: str
    sessions: int
    preference: float
    manners: float
    right: float
    steps_kept: float
    bare: float
    sessions_to_three: int | None
    level: float | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def read_results(path: Path) -> list[tuple[int, str]]:
    """Returns (number of the problem, first reply) of each session in a results file, in order.

    Raises:
        ValueError: the file has no session.
    """
    text = path.read_text(encoding="utf-8")
    heads = list(_HEAD.finditer(text))
    if not heads:
        raise ValueError(f"{path} contains no line '[session: KEY-NUMBER-PID]'")
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        (int(head.group(2)), text[head.end() : end].strip()) for head, end in zip(heads, ends, strict=True)
    ]


def summarise(
    person: str,
    problems: list[WordProblem],
    results: list[tuple[int, str]],
    levels: list[float | None] | None = None,
) -> Summary:
    """Returns v2 of all sessions, and v1 if levels are given. Raises ValueError when the data set has too few
    problems."""
    if max(number for number, _ in results) >= len(problems):
        raise ValueError("the results name problems that the data set does not have; give the same --dataset")
    replies = replies_of(person, problems, results)
    known = [level for level in levels or [] if level is not None]

    def share(what: str) -> float:
        return round(sum(getattr(reply, what) for reply in replies) / len(replies), 4)

    return Summary(
        person=person,
        sessions=len(replies),
        preference=share("content"),
        manners=share("manners"),
        right=share("right"),
        steps_kept=share("steps"),
        bare=share("bare"),
        sessions_to_three=sessions_to_three([reply.content for reply in replies]),
        level=round(sum(known) / len(known), 4) if known else None,
    )


def curve(
    person: str, problems: list[WordProblem], results: list[tuple[int, str]], window: int = 9
) -> list[tuple[int, float]]:
    """Returns the preference over the last `window` sessions, after each session, for a plot."""
    content = [reply.content for reply in replies_of(person, problems, results)]
    return [
        (end, sum(content[max(0, end - window) : end]) / min(end, window))
        for end in range(1, len(content) + 1)
    ]


class Evaluator:
    """A language model that gives levels. An unreadable vote, or one that is near no level, is ignored."""

    def __init__(self, base_url: str, api_key: str, model: str, votes: int = 5) -> None:
        self._http = httpx.Client(
            base_url=base_url.rstrip("/"), timeout=SECONDS, headers={"Authorization": f"Bearer {api_key}"}
        )
        self._model, self._votes = model, votes

    def level(self, person: str, problem: WordProblem, reply: str) -> float | None:
        """Returns the mean of the valid votes; None if there are none."""
        valid = [
            level for _ in range(self._votes) if (level := self._vote(person, problem, reply)) is not None
        ]
        return sum(valid) / len(valid) if valid else None

    def _vote(self, person: str, problem: WordProblem, reply: str) -> float | None:
        question = (
            f"A {person} asked an assistant about this problem:\n{problem.question}\n\n"
            f"The assistant's first reply:\n{reply}\n\n"
            f"The {person} wants: {_WANTS[person]}. How well does the reply, as it is, meet that wish? Choose one "
            "of 0, 0.25, 0.5, 0.75 and 1, and end with it as \\boxed{...}."
        )
        body = {"model": self._model, "temperature": 0, "messages": [{"role": "user", "content": question}]}
        try:
            response = self._http.post("/chat/completions", json=body)
            response.raise_for_status()
            text = str(response.json()["choices"][0]["message"]["content"] or "")
        except (httpx.HTTPError, ValueError, KeyError, IndexError):
            return None
        return nearest_level(text)


def nearest_level(text: str) -> float | None:
    """Returns the last boxed number, rounded to the nearest level; None if none is near."""
    boxed = _BOXED.findall(text)
    if not boxed:
        return None
    level = min(LEVELS, key=lambda known: abs(known - float(boxed[-1])))
    return level if abs(level - float(boxed[-1])) <= NEAR else None


def replies_of(person: str, problems: list[WordProblem], results: list[tuple[int, str]]) -> list[Reply]:
    """Returns the detectors' results for each session."""
    return [assess(person, problems[number], reply) for number, reply in results]
