"""What the rules judge makes of tools, people and replies of judge models, on the lines that nothing was chosen on.

    bash lab/run.sh benchmarks.learning.judge_bars

Prints one JSON object: shares, and processor milliseconds a judged turn. It reads the parts `held_out` of the lists in
tests/openclaw/judge/data, of which clear lines count, and both parts of the replies of judge models, whose reader is
exact. Languages of fewer than nine lines are left out of the smallest share.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from claw_lab import ROOT
from claw_lab.benchmarks.learning.judge_agreement import question_of
from openclaw.judge.backends.model import Reply
from openclaw.judge.backends.votes import read_eval_vote
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import hint_by_rules, vote_by_rules

DATA = ROOT / "tests" / "openclaw" / "judge" / "data"
SHELLS = "shell exec Bash command terminal"
"""Parts of the names of tools that take a command."""
FEWEST = 9
"""Lines of a language that has a share of its own."""

Judged = TypeVar("Judged")
Row = dict[str, Any]
Pair = tuple[int, int]
"""A label, and the score."""


def rows(path: str) -> list[Row]:
    return [json.loads(line) for line in (DATA / path).read_text("utf-8").splitlines()]


def of_agent(row: Row) -> JudgeQuestion:
    """A turn that called a tool of an agent, and its result."""
    name = "command" if any(part in row["tool"] for part in SHELLS.split()) else "path"
    called = f"{row['tool']}({json.dumps({name: row['command']})})"
    return JudgeQuestion(
        response="I edited the file." if row["role"] == "user" else called,
        next_state=[{"role": row["role"], "content": row["result"]}],
        role=row["role"],
        messages=[{"role": "user", "content": "Please do it."}],
    )


def of_person(row: Row) -> JudgeQuestion:
    return JudgeQuestion(
        response=row["answer"],
        next_state=[{"role": "user", "content": row["text"]}],
        role="user",
        messages=[{"role": "user", "content": row["request"]}],
    )


def share(hits: Iterable[bool]) -> float:
    found = list(hits)
    return round(sum(found) / len(found), 3)


def signs(pairs: list[Pair]) -> dict[str, float | int]:
    return {
        "lines": len(pairs),
        "right": share(label == score for label, score in pairs),
        "wrong_sign": share(label * score < 0 for label, score in pairs),
    }


class Clock:
    """Scores questions, and counts the processor time that it takes."""

    def __init__(self) -> None:
        self.spent, self.turns = 0.0, 0

    def timed(self, judge: Callable[[JudgeQuestion], Judged], question: JudgeQuestion) -> Judged:
        began = time.process_time()
        found = judge(question)
        self.spent += time.process_time() - began
        return found

    def score(self, question: JudgeQuestion) -> int:
        self.turns += 1
        return int(self.timed(vote_by_rules, question).score or 0)


def measure() -> dict[str, Any]:
    clock = Clock()
    recorded = [row for row in rows("recorded/held_out.jsonl") if row["clear"]]
    said = rows("user_lines/held_out.jsonl")
    tools = [(row["label"], clock.score(question_of(row))) for row in recorded if row["kind"] == "tool"] + [
        (int(row["score"]), clock.score(of_agent(row))) for row in rows("agent_results/held_out.jsonl")
    ]
    chat: defaultdict[str, list[Pair]] = defaultdict(list)
    new: list[Pair] = []
    hints: defaultdict[bool, list[bool]] = defaultdict(list)
    for row in (row for row in recorded if row["kind"] != "tool"):
        pair = row["label"], clock.score(question_of(row))
        (new if row["kind"] == "person-new-request" else chat[row["language"]]).append(pair)
    for row in said:
        pair = row["reward"], clock.score(of_person(row))
        (new if row["kind"] == "new" else chat[row["language"]]).append(pair)
        hint = clock.timed(hint_by_rules, of_person(row)).lower()
        made = bool(hint) if not row["hint"] else row["holds"].lower() in hint
        hints[row["hint"]].append(made and not (row["lacks"] and row["lacks"].lower() in hint))
    languages = {
        name: round(signs(pairs)["right"], 2) for name, pairs in chat.items() if len(pairs) >= FEWEST
    }
    votes = [
        (row["vote"], read_eval_vote(Reply.of_chat({"choices": [{**row}]})).score)
        for part in ("seen", "held_out")
        for row in rows(f"model_replies/{part}.jsonl")
    ]
    return {
        "tools": signs(tools),
        "chat": signs([pair for pairs in chat.values() for pair in pairs]),
        "languages": languages,
        "smallest_language": min(languages.values()),
        "new_requests": {"lines": len(new), "judged": share(score != 0 for _, score in new)},
        "hints_made": share(hints[True]),
        "hints_without_advice": share(hints[False]),
        "replies": {
            "lines": len(votes),
            "right": sum(vote == score for vote, score in votes),
            "wrong_votes": sum(score not in (vote, None) for vote, score in votes),
        },
        "milliseconds_a_turn": round(1000 * clock.spent / clock.turns, 2),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
