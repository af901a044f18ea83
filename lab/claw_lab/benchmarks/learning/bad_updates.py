"""Measures which bad updates the gate stops and at which stage, the harm of those that pass, the share of good
updates that it rejects, and its cost.

`bash lab/run.sh benchmarks.learning.bad_updates --results bad.jsonl` lets students talk with the gated loop of one
process (all their updates are good), then makes bad updates of ten kinds from the live state of each, ten of each
kind in total; the trained ones at 1, 3 and 10 times the learning rate in turn. With --drift it also makes many of
each kind in a row, at the usual rate.

Each result is a line of the file; recorded updates are not measured again, so the program can be ended (--minutes)
and restarted. At the end it prints the table.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from claw_lab import MODEL
from claw_lab.offline.bad_updates import HARM, KINDS, TRAINED, Bench, Drift
from claw_lab.offline.gated import FLAGS, GatedLoop, GatedTrial
from claw_lab.offline.local_loop import ChatModel
from claw_lab.offline.methods import METHODS, Setting
from claw_lab.offline.trial import Plan
from openclaw_test.people.tastes import STUDENT

SCALES = (1.0, 3.0, 10.0)
Row = dict[str, Any]


class Results:
    """Stores results in a file, one a line, by the kind of update."""

    def __init__(self, path: Path, minutes: float) -> None:
        self.path, self.end = path, time.monotonic() + 60 * minutes
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.rows: list[Row] = [json.loads(line) for line in lines]

    def has(self, **named: object) -> bool:
        return any(named.items() <= row.items() for row in self.rows)

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    @property
    def late(self) -> bool:
        return time.monotonic() > self.end


def measure(chat: ChatModel, seed: int, options: argparse.Namespace, results: Results) -> None:
    """Runs one student's conversation, and the bad updates that start from its end."""
    attempts = [(kind, number) for number in range(options.each) for kind in options.kinds]
    todo = [one for one in attempts if not results.has(what="bad", seed=seed, kind=one[0], number=one[1])]
    drifts = [
        kind
        for kind in (options.kinds if options.drift else ())
        if kind in TRAINED and not results.has(what="drift", seed=seed, kind=kind)
    ]
    if not todo and not drifts and results.has(what="good", seed=seed):
        return
    setting = Setting(METHODS["topk_select"], extra=(*FLAGS, *options.flags.split()))
    trial = GatedTrial(chat, setting, Plan((STUDENT,), options.sessions), seed)
    loop: GatedLoop = trial.loop
    try:
        for number in range(options.sessions // 3):
            trial._round(3 * number)
        if not results.has(what="good", seed=seed):
            results.add(what="good", seed=seed, **good(loop))
        if not todo and not drifts:
            return
        bench = Bench(loop, options.problems)
        for kind, number in todo:
            if results.late:
                return
            rng = random.Random(f"{seed} {kind} {number}")
            result = bench.attempt(kind, SCALES[number % len(SCALES)] if kind in TRAINED else 1.0, rng)
            results.add(what="bad", seed=seed, number=number, **asdict(result))
        for kind in drifts:
            if results.late:
                return
            drift = bench.drift(kind, options.drift, random.Random(f"{seed} {kind}"))
            results.add(what="drift", seed=seed, longest=drift.longest, **asdict(drift))
    finally:
        loop.close()


def good(loop: GatedLoop) -> Row:
    """Returns the row of the student's own updates."""
    trained = sum(step["train_seconds"] for step in loop.metrics)
    examined = sum(one["seconds"] for one in loop.measurements)
    return {
        "updates": len(loop.measurements) + len(loop.rejections),
        "rejected": [list(one) for one in loop.rejections],
        "undone": list(loop.undone),
        "audit_seconds": round(loop.audit_seconds, 3),
        "gate_seconds": round(examined, 3),
        "train_seconds": round(trained, 3),
        "largest": {
            name: max((one.get(name, 0.0) for one in loop.measurements), default=0.0)
            for name in ("change", "kl", "liked_loss")
        },
    }


def table(rows: list[Row]) -> str:
    """Returns Markdown tables: single bad updates by kind, bad updates in a row, and good updates."""
    lines = [*single_updates(rows), "", *drifts(rows), "", *good_updates(rows)]
    return "\n".join(lines)


def single_updates(rows: list[Row]) -> list[str]:
    """Returns rows with the fall of greedy accuracy: of versions that answered users, and of those that stayed live
    after all questions."""
    lines = [
        "| kind | updates | stopped before it answered, by | gone back from | stayed | largest fall that answered "
        "| that stayed | stayed with two points less |",
        "|---|--:|---|--:|--:|--:|--:|--:|",
    ]
    bad, harmful = [row for row in rows if row["what"] == "bad"], 0
    for kind in KINDS:
        of_kind = [row for row in bad if row["kind"] == kind]
        stopped = Counter(row["stage"] for row in of_kind if row["fall"] is None)
        live = [row["fall"] for row in of_kind if row["fall"] is not None]
        stayed = [row["fall"] for row in of_kind if row["stage"] == ""]
        by = ", ".join(f"{stage} {count}" for stage, count in stopped.most_common()) or "nothing"
        stays = sum(fall >= HARM for fall in stayed)
        harmful += stays
        counts = f"{len(live) - len(stayed)} | {len(stayed)} | {largest(live)} | {largest(stayed)} | {stays}"
        lines.append(f"| {kind} | {len(of_kind)} | {by} | {counts} |")
    answered = sum(row["fall"] is not None for row in bad)
    lines += ["", f"{len(bad)} bad updates, {answered} answered, {harmful} stayed with two points less"]
    return lines


def largest(falls: list[float]) -> str:
    return f"{max(falls):.3f}" if falls else "none"


def drifts(rows: list[Row]) -> list[str]:
    lines = [
        "| one on the other | updates | stopped | largest fall that answered | two points or more for | at the end |",
        "|---|--:|---|--:|--:|--:|",
    ]
    for row in (row for row in rows if row["what"] == "drift"):
        drift = Drift(row["kind"], row["stopped"], row["live"])
        by = Counter(stage for stage in drift.stopped if stage)
        stopped_by = ", ".join(f"{stage} {count}" for stage, count in by.most_common()) or "nothing"
        last = drift.live[-1] if drift.stopped[-1] == "" else min(drift.live[-2:])
        lines.append(
            f"| {drift.kind}, seed {row['seed']} | {len(drift.stopped)} | {stopped_by} | {max(drift.live):.3f} "
            f"| {drift.longest} updates | {last:.3f} |"
        )
    return lines


def good_updates(rows: list[Row]) -> list[str]:
    talks = [row for row in rows if row["what"] == "good"]
    count, rejected = (
        sum(row["updates"] for row in talks),
        sum(len(row["rejected"]) + len(row["undone"]) for row in talks),
    )
    seconds = [sum(row[f"{what}_seconds"] for row in talks) for what in ("gate", "train", "audit")]
    lines = [f"good updates: {rejected} of {count} rejected or undone, in {len(talks)} talks"]
    of_gate, of_training, behind = seconds
    lines.append(f"seconds over those of training: gate {of_gate / max(of_training, 1e-9):.2f}")
    lines[-1] += f", questions behind the switch {behind / max(of_training, 1e-9):.2f}"
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--results", type=Path, required=True, help="file of the results; an existing one is continued"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="number of students")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of bad updates")
    parser.add_argument(
        "--sessions", type=int, default=24, help="sessions of good updates before the bad ones"
    )
    parser.add_argument("--each", type=int, default=5, help="bad updates of each kind and seed")
    parser.add_argument("--drift", type=int, default=0, help="consecutive bad updates of each kind")
    parser.add_argument("--problems", type=int, default=200, help="held-out problems for the accuracy")
    parser.add_argument("--minutes", type=float, default=1e6, help="minutes after which the program ends")
    parser.add_argument("--flags", default="", help="further flags of the driver, in quotes")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    chat, results = ChatModel(str(MODEL)), Results(options.results, options.minutes)
    for seed in options.seeds:
        if not results.late:
            measure(chat, seed, options, results)
    print(table(results.rows))


if __name__ == "__main__":
    main()
