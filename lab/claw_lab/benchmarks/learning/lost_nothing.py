"""Measures whether a model learned a person's preferences and kept its other abilities.

It asks five classes of held-out prompts, before and after.

    bash lab/run.sh benchmarks.learning.lost_nothing --before http://127.0.0.1:30000 --save before.json
    bash lab/run.sh benchmarks.learning.lost_nothing --before before.json --after http://127.0.0.1:30000 \\
        --wish "Shorter, please: one or two sentences." --report lab/reports/learning/NAME.DATE.json

`--before` and `--after` are servers, or files of answers that `--save` wrote. The classes (in scope, near scope,
unrelated, explicit opposite, capability) have at least 200 prompts each by several writers. All answers are greedy,
and neither stored nor trained. Rows are those of `claw progress`, with the entropy of each token. `--prompted` also
asks the earlier model with the preferences in its prompt, if it is a server. The last line on standard output is one
JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openclaw.chat.client import ChatError, Server
from openclaw.progress.asking import Answers, LiveModel, replies_to
from openclaw.progress.prompts import Item, all_items, chosen
from openclaw.progress.replies import Reply
from openclaw.progress.report import Measured, Row, Wish, as_json, rows_of, summary_of

TOP = 20
"""Number of most likely tokens from which the entropy is computed."""
PARTS = 40
"""Prompts between two progress lines."""
UNITS = {"words": "words", "log_prob": "nats", "entropy": "nats"}
COMMAND = "bash lab/run.sh benchmarks.learning.lost_nothing"


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--before", required=True, help="server of the earlier model, or a file of its answers"
    )
    parser.add_argument(
        "--after",
        help="server of the later model, or a file of its answers; default: only save those of --before",
    )
    parser.add_argument("--wish", action="append", default=[], help="preference of the person; repeatable")
    parser.add_argument(
        "--prompted",
        action="store_true",
        help="also ask the earlier model with the preferences in its prompt",
    )
    parser.add_argument("--sample", type=int, default=0, help="prompts of each class; default 0: all")
    parser.add_argument("--max-tokens", type=int, default=160, help="most tokens of each answer, default 160")
    parser.add_argument("--save", type=Path, help="write the newest answers to this file")
    parser.add_argument("--report", type=Path, help="write a report for lab/reports to this file")
    parser.add_argument("--model", default="", help="name of the model, for the report")
    args = parser.parse_args(argv)
    if args.after and not args.wish:
        parser.error("--after needs a --wish: what is to be learned")
    if not args.after and not args.save:
        parser.error("give --after, or --save for the answers before")
    return args


def answers_of(place: str, items: Sequence[Item], max_tokens: int, wishes: Sequence[str] = ()) -> Answers:
    """Returns the answers of a server, or those of a file. Raises ChatError, or ValueError for a file with other
    settings."""
    if not re.match(r"https?://", place):
        return saved(Path(place), items, max_tokens)
    server = Server(place, os.environ.get("SGLANG_API_KEY"))
    answers: Answers = {}
    try:
        for at in range(0, len(items), PARTS):
            answers |= replies_to(LiveModel(server, max_tokens, TOP), items[at : at + PARTS], wishes)
            print(f"{place}: {len(answers)} of {len(items)} prompts", file=sys.stderr, flush=True)
    finally:
        server.close()
    return answers


def saved(file: Path, items: Sequence[Item], max_tokens: int) -> Answers:
    """Returns the answers to these prompts from a file. Raises ValueError, OSError."""
    read = json.loads(file.read_text("utf-8"))
    if read["max_tokens"] != max_tokens:
        raise ValueError(f"{file} has answers of at most {read['max_tokens']} tokens, not of {max_tokens}")
    if missing := [item.id for item in items if item.id not in read["answers"]]:
        raise ValueError(f"{file} has no answer to {len(missing)} of the prompts, such as {missing[0]}")
    return {item.id: Reply.read(read["answers"][item.id]) for item in items}


def save(file: Path, answers: Answers, max_tokens: int) -> None:
    texts = {name: reply.as_dict() for name, reply in answers.items()}
    file.write_text(json.dumps({"max_tokens": max_tokens, "answers": texts}, ensure_ascii=False), "utf-8")


def measurements(rows: Sequence[Row], summary: dict[str, float]) -> list[dict[str, Any]]:
    """Returns the rows and the summary with the keys of `lab/reports/README.md`."""
    lines = []
    for row in rows:
        one = {
            "id": row.name.replace("_", "-"),
            "metric": row.label,
            "value": round(row.now or 0.0, 4),
            "unit": "share" if row.kind == "share" else UNITS.get(row.name, "score"),
            "n": row.count,
        }
        if row.interval is not None:
            one |= {"interval": [round(end, 4) for end in row.interval], "interval_kind": "95 %"}
        compared = {"before": row.before, "prompt": row.prompted, "exact McNemar p": row.p}
        numbers = [f"{name} {value:.3g}" for name, value in compared.items() if value is not None]
        lines.append({**one, **({"note": "; ".join(numbers)} if numbers else {})})
    for name, value in summary.items():
        id_ = name.lower().replace("_", "-")
        lines.append({"id": id_, "metric": f"C3PO {name}", "value": round(value, 4), "unit": "score"})
    return lines


def report(options: argparse.Namespace, rows: Sequence[Row], summary: dict[str, float]) -> dict[str, Any]:
    """Returns a report in the format of `lab/reports/README.md`."""
    wishes = " ".join(f'--wish "{wish}"' for wish in options.wish)
    model = {"model": options.model} if options.model else {}
    return {
        "date": time.strftime("%Y-%m-%d"),
        "title": f"Learned, and lost nothing{': ' + options.model if options.model else ''}",
        "command": f"{COMMAND} --before BEFORE --after AFTER {wishes} --sample {options.sample}",
        "conditions": {
            **model,
            "data": "openclaw/progress/data",
            "setting": f"greedy, at most {options.max_tokens} tokens",
        },
        "measurements": measurements(rows, summary),
    }


def run(options: argparse.Namespace) -> int:
    items = chosen(all_items(), options.sample)
    before = answers_of(options.before, items, options.max_tokens)
    if options.after is None:
        save(options.save, before, options.max_tokens)
        print(json.dumps({"saved": str(options.save), "prompts": len(before)}))
        return 0
    after = answers_of(options.after, items, options.max_tokens)
    if options.save is not None:
        save(options.save, after, options.max_tokens)
    prompted = (
        answers_of(options.before, items, options.max_tokens, options.wish) if options.prompted else None
    )
    wishes = [Wish(text) for text in options.wish]
    measured = Measured(items, before, after, prompted)
    rows, summary = rows_of(measured, wishes), summary_of(measured, wishes)
    if options.report is not None:
        options.report.write_text(json.dumps(report(options, rows, summary), indent=2) + "\n", "utf-8")
    print(
        json.dumps({"wishes": options.wish, "prompts": len(items), "summary": summary, "rows": as_json(rows)})
    )
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if a server or file cannot be used; 2 for a wrong command line."""
    options = parse(argv)
    if options.prompted and not re.match(r"https?://", options.before):
        print("error: --prompted needs a server as --before", file=sys.stderr)
        return 2
    try:
        return run(options)
    except (ChatError, OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
