"""Measures the rules judge on held-out lines: tools, people and replies of judge models.

    bash lab/run.sh benchmarks.learning.judge_bars                  # the rules alone
    bash lab/run.sh benchmarks.learning.judge_bars --embeddings     # with the sentence model

Prints one JSON object: shares, and processor milliseconds a judged turn. It reads the clear lines of the parts
`held_out` of the lists in tests/openclaw/judge/data, and both parts of the replies of judge models, whose parser is
exact. Languages with fewer than nine lines are excluded from the smallest share. `written` are the lines of
data/written, which are harder: indirect complaints, and requests that mention lengths, mistakes and thanks; two
thirds of `written_2` are plain, as in usual conversations. `form`
are those of data/form: complaints about form, and messages that mention its words. `indirect` are those of
data/indirect: complaints about form as irony or a story, remarks and thanks in similar words. `own_texts` are those
of data/own_texts: requests about texts of other people, and complaints in similar words.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from claw_lab import ROOT
from claw_lab.benchmarks.learning.judge_agreement import question_of
from claw_lab.judge_head.lines import lengthened
from openclaw.common.plain_sentences import Pole, pole_of_plain_sentence
from openclaw.judge.backends.model import Reply
from openclaw.judge.backends.votes import read_eval_vote
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import hint_by_rules, vote_by_rules
from openclaw.judge.sentences.backend import SentenceBackend
from openclaw.judge.sentences.encoder import Encoder
from openclaw.judge.sentences.head import POLES, Head
from openclaw.types import Vote

DATA = ROOT / "tests" / "openclaw" / "judge" / "data"
SHELLS = "shell exec Bash command terminal"
"""Parts of the names of tools that run a command."""
FEWEST = 9
"""Minimum lines of a language for a share of its own."""

Judged = TypeVar("Judged")
Row = dict[str, Any]
Pair = tuple[int, int]
"""(label, score)."""


def rows(path: str) -> list[Row]:
    return [json.loads(line) for line in (DATA / path).read_text("utf-8").splitlines()]


def of_agent(row: Row) -> JudgeQuestion:
    """Returns the question of a turn that called a tool of an agent, with the tool's result."""
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
    matches = list(hits)
    return round(sum(matches) / len(matches), 3)


def signs(pairs: list[Pair]) -> dict[str, float | int]:
    return {
        "lines": len(pairs),
        "right": share(label == score for label, score in pairs),
        "wrong_sign": share(label * score < 0 for label, score in pairs),
    }


@dataclass(frozen=True)
class Judge:
    """A judge that gives votes and hints."""

    vote: Callable[[JudgeQuestion], Vote]
    hint: Callable[[JudgeQuestion], str]


RULES = Judge(vote_by_rules, hint_by_rules)


def with_sentences() -> Judge:
    """Returns the rules with the sentence model, after a warm-up sentence."""
    backend = SentenceBackend(Head(Encoder()))
    backend.vote(of_person({"request": "hello", "answer": "Hello!", "text": "thanks"}))
    return Judge(backend.vote, backend.hint)


class Clock:
    """Scores questions and sums the processor time."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.spent, self.turns = 0.0, 0

    def timed(self, judge: Callable[[JudgeQuestion], Judged], question: JudgeQuestion) -> Judged:
        began = time.process_time()
        vote = judge(question)
        self.spent += time.process_time() - began
        return vote

    def score(self, question: JudgeQuestion) -> int:
        self.turns += 1
        return int(self.timed(self.judge.vote, question).score or 0)

    def hint(self, question: JudgeQuestion) -> str:
        return self.timed(self.judge.hint, question)


def written_rows(part: str) -> list[Row]:
    """Returns the lines of a part of data/written, with answers of realistic length."""
    return [{**row, "answer": lengthened(row)} for row in rows(f"written/{part}.jsonl")]


def of_written(clock: Clock, part: str) -> dict[str, Any]:
    """Returns shares of a part of data/written: feedback and requests judged right; form complaints that get the plain
    sentence of their form (`forms_recognised`), and messages without a complaint that get one (`mentions_matched`)."""
    chat: defaultdict[str, list[Pair]] = defaultdict(list)
    new: list[Pair] = []
    forms: list[bool] = []
    mentions: list[bool] = []
    for row in written_rows(part):
        pair = row["label"], clock.score(of_person(row))
        (new if row["kind"] == "next" else chat[row["language"]]).append(pair)
        pole: Pole | None = pole_of_plain_sentence(clock.hint(of_person(row)))
        if row["kind"] in POLES:
            forms.append(pole == POLES[row["kind"]])
        elif row["label"] >= 0:
            mentions.append(pole is not None)
    languages = {name: round(signs(pairs)["right"], 2) for name, pairs in sorted(chat.items())}
    return {
        "chat": signs([pair for pairs in chat.values() for pair in pairs]),
        "languages": languages,
        "new_requests": {"lines": len(new), "judged": share(score != 0 for _, score in new)},
        "forms_recognised": {"lines": len(forms), "share": share(forms)},
        "mentions_matched": {"lines": len(mentions), "share": share(mentions)},
    }


def of_form(clock: Clock, folder: str) -> dict[str, Any]:
    """Returns shares of data/form or data/indirect: complaints judged -1, with the right plain sentence, with another;
    mentions judged right, and with a plain sentence."""
    marked: defaultdict[str, list[bool]] = defaultdict(list)
    signs_of: defaultdict[bool, list[Pair]] = defaultdict(list)
    others, mentions = [], []
    for row in rows(f"{folder}/held_out.jsonl"):
        question, kind = of_person(row), row["kind"]
        signs_of[kind in POLES].append((row["label"], clock.score(question)))
        asked = asked_form(clock.hint(question))
        if kind not in POLES:
            mentions.append(asked is not None)
            continue
        marked[kind].append(asked == kind)
        marked[row["language"]].append(asked == kind)
        others.append(asked not in (kind, None))
    of_kinds = {kind: marked.pop(kind) for kind in POLES if kind in marked}
    return {
        "complaints": signs(signs_of[True]),
        "recognised": share(one for marks in of_kinds.values() for one in marks),
        "another_form": share(others),
        "kinds": {kind: share(marks) for kind, marks in of_kinds.items()},
        "languages": {name: share(marks) for name, marks in sorted(marked.items())},
        "mentions": signs(signs_of[False]),
        "mentions_matched": share(mentions),
    }


def of_own_texts(clock: Clock) -> dict[str, Any]:
    """Returns shares of data/own_texts: requests and remarks judged at all; complaints judged right and wrongly."""
    pairs = [(row["label"], clock.score(of_person(row))) for row in rows("own_texts/held_out.jsonl")]
    others = [score != 0 for label, score in pairs if label == 0]
    return {
        "others": {"lines": len(others), "judged": share(others)},
        "complaints": signs([pair for pair in pairs if pair[0] < 0]),
    }


def asked_form(hint: str) -> str | None:
    """Returns the kind of complaint whose plain sentence begins a hint; None if there is none."""
    pole = pole_of_plain_sentence(hint)
    return next((kind for kind in POLES if POLES[kind] == pole), None)


def measure(judge: Judge = RULES) -> dict[str, Any]:
    clock = Clock(judge)
    recorded = [row for row in rows("recorded/held_out.jsonl") if row["clear"]]
    messages = rows("user_lines/held_out.jsonl")
    tools = [(row["label"], clock.score(question_of(row))) for row in recorded if row["kind"] == "tool"] + [
        (int(row["score"]), clock.score(of_agent(row))) for row in rows("agent_results/held_out.jsonl")
    ]
    chat: defaultdict[str, list[Pair]] = defaultdict(list)
    new: list[Pair] = []
    hints: defaultdict[bool, list[bool]] = defaultdict(list)
    for row in (row for row in recorded if row["kind"] != "tool"):
        pair = row["label"], clock.score(question_of(row))
        (new if row["kind"] == "person-new-request" else chat[row["language"]]).append(pair)
    for row in messages:
        pair = row["reward"], clock.score(of_person(row))
        (new if row["kind"] == "new" else chat[row["language"]]).append(pair)
        hint = clock.hint(of_person(row)).lower()
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
        "written": of_written(Clock(judge), "held_out"),
        "written_2": of_written(Clock(judge), "held_out_2"),
        "form": of_form(Clock(judge), "form"),
        "indirect": of_form(Clock(judge), "indirect"),
        "own_texts": of_own_texts(Clock(judge)),
        "largest_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--embeddings", action="store_true", help="measure the rules with the sentence model")
    options = parser.parse_args(argv)
    print(json.dumps(measure(with_sentences() if options.embeddings else RULES)))


if __name__ == "__main__":
    main()
