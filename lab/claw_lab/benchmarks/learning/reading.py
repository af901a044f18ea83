"""Measures how well the rules, alone and with a model, classify eight people's feedback on answers.

`bash lab/run.sh benchmarks.learning.reading` measures the rules alone and with the sentence model; with `--url URL
--model FOLDER` of an engine that serves a model, also the rules with the language-model reader. Each line of
`openclaw_test.people.everyday_talk` follows a long answer, a list if it complains about layout, a short answer if it
asks for more. The last line on standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from openclaw.common.plain_sentences import Pole, pole_of_plain_sentence
from openclaw.judge.backends.base import JudgeBackend, make_backend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.settings import JudgeSettings
from openclaw_test.loop.readiness import say
from openclaw_test.people.everyday_talk import WRITERS, Kind, TalkLine, read_talk

LONG = "The moon is far from the earth and moves around it in about a month. " * 8
LIST = "Here is what you can do:\n" + "".join(
    f"- step {number} of what you need today\n" for number in range(9)
)
SHORT = "It takes about a month."
SCORES: dict[Kind, int] = {"thanks": 1, "next": 0}
"""Scores of these kinds; all others: -1."""
POLES: dict[Kind, Pole] = {
    "brief": "short", "prose": "prose", "greeting": "greet", "long": "long", "list": "list",
}  # fmt: skip
KINDS: tuple[Kind, ...] = (
    "brief", "prose", "greeting", "long", "list", "wrong", "tone", "vague", "next", "thanks",
)  # fmt: skip


def question(line: TalkLine) -> JudgeQuestion:
    answer = {"prose": LIST, "long": SHORT}.get(line.kind, LONG)
    return JudgeQuestion(
        response=answer,
        next_state=[{"role": "user", "content": line.text}],
        role="user",
        messages=[{"role": "user", "content": "How far is the moon?"}],
    )


async def count(backend: JudgeBackend, lines: Sequence[TalkLine]) -> Counter[str]:
    """Counts lines with the right score, with a wrong sign, and plain sentences that ask for the right preference or
    for another."""
    counts: Counter[str] = Counter(lines=len(lines))
    for line in lines:
        (vote,), (hint,) = (
            await backend.eval_votes(question(line), 1),
            await backend.hint_votes(question(line), 1),
        )
        expected, pole = SCORES.get(line.kind, -1), pole_of_plain_sentence(hint.hint or "")
        counts["right"] += vote.score == expected
        counts["wrong_sign"] += bool(vote.score) and vote.score == -expected
        counts["judged_request"] += expected == 0 and vote.score != 0
        counts["plain_sentence"] += pole is not None and pole == POLES.get(line.kind)
        counts["other_plain_sentence"] += pole is not None and pole != POLES.get(line.kind)
    return counts


async def run(options: argparse.Namespace) -> dict[str, object]:
    judges = {"rules": JudgeSettings(), "rules and sentences": JudgeSettings(judge_embeddings="on")}
    if options.url:
        reader = JudgeSettings(judge_reader_url=(options.url,), judge_reader_model=options.model)
        judges["rules and reader"] = reader
    rows = []
    for name, settings in judges.items():
        backend = make_backend(settings, JudgeMetrics("rules"))
        for kind in KINDS:
            lines = [line for line in read_talk(kind) if line.writer in options.writers]
            if lines:
                counts = await count(backend, lines)
                rows.append({"judge": name, "kind": kind} | counts)
                say(f"{name}, {kind}: {dict(counts)}")
        await backend.close()
    totals = {name: Counter[str]() for name in judges}
    for row in rows:
        numbers = {key: value for key, value in row.items() if isinstance(value, int)}
        totals[str(row["judge"])].update(numbers)
    return {"model": options.model, "writers": options.writers, "rows": rows, "totals": totals}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="address of an engine that serves a model")
    parser.add_argument("--model", help="folder of its model's tokenizer")
    parser.add_argument("--writers", default=WRITERS[4:], help="writers of the lines; E to H are held out")
    return parser.parse_args(argv)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(parse()))))
