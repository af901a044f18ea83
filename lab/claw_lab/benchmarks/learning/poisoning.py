"""Measures the effect of hostile or careless people on a model that others teach honestly.

`bash lab/run.sh benchmarks.learning.poisoning --kinds liar careless` runs methods x kinds x seeds in this process
(see claw_lab/offline), and prints one JSON line for each: how the honest people rate fresh replies, accuracy,
distance of the model from its start, and the trained samples of each person. `none` is the same without hostile
people. `--honest` and `--hostile` set the share.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sqlalchemy import select

from claw_lab import MODEL
from claw_lab.offline.local_loop import ChatModel, LocalLoop, Talk
from claw_lab.offline.measures import ask, explicit_wishes, fresh_problems, greedy_accuracy, preferences
from claw_lab.offline.methods import METHODS, Setting
from openclaw.store import RolloutStore, schema
from openclaw_test.people.hostile import KINDS, HostileUser
from openclaw_test.people.scripted_user import ScriptedUser
from openclaw_test.people.tastes import STUDENT

NOBODY = "none"


class Company:
    """Honest students and hostile people who share one model, one session of each at a time."""

    def __init__(self, loop: LocalLoop, kind: str, honest: int, hostile: int, seed: int) -> None:
        self.loop = loop
        self.students = [(f"student {i}", ScriptedUser(1000 * seed + i)) for i in range(honest)]
        known = [each for each in KINDS if each == kind]
        self.hostile = [HostileUser(each, 1000 * seed + i) for each in known for i in range(hostile)]
        self._sessions = 0

    def round(self) -> None:
        """Runs one session of each person, one turn of each at a time."""
        speakers = [(name, user.session()) for name, user in self.students]
        speakers += [(user.name, user.session()) for user in self.hostile]  # type: ignore[misc]
        live: list[tuple[Any, Talk]] = []
        for name, session in speakers:
            self._sessions += 1
            talk = Talk([], f"session-{self._sessions}", person=name)
            self.loop.follow(talk, session.opening)
            live.append((session, talk))
        while live:
            live = self._turn(live)
            self.loop.learn()

    def _turn(self, live: Sequence[tuple[Any, Talk]]) -> list[tuple[Any, Talk]]:
        going_on = []
        for (session, talk), text in zip(live, self.loop.say([talk for _, talk in live]), strict=True):
            message = session.next_message(text)
            if message is None:
                self.loop.end(talk)
                continue
            self.loop.follow(talk, message, getattr(session, "role", "user"))
            if getattr(session, "role", "user") == "user":
                going_on.append((session, talk))
            else:
                self.loop.end(talk)
        return going_on


def learned_from(store: RolloutStore) -> dict[str, dict[str, int]]:
    """Returns by person the number of trained samples with scores +1 and -1."""
    with store.database.reading() as connection:
        ids = list(connection.scalars(select(schema.sample.c.id).where(schema.sample.c.state == "trained")))
    counts: dict[str, Counter[str]] = {}
    for record in store.samples.get(sorted(ids)):
        score = record.reward["score"] if isinstance(record.reward, dict) else record.reward
        counts.setdefault(str(record.turn.person), Counter())[f"{score:+g}"] += 1
    return {person: dict(of_person) for person, of_person in sorted(counts.items())}


def trial(chat: ChatModel, kind: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Runs one group from the first weights; all randomness follows from `seed`."""
    began = time.monotonic()
    setting = Setting(METHODS[options.method], extra=tuple(options.flags.split()))
    loop = LocalLoop(chat, setting, seed)
    try:
        company = Company(loop, kind, options.honest, options.hostile, seed)
        for _ in range(options.sessions):
            company.round()
        replies = ask(chat, fresh_problems(seed), random.Random(f"poisoning {seed}").getrandbits(40))
        wishes = explicit_wishes(chat, seed).as_dict()
        return {
            "kind": kind,
            "seed": seed,
            "method": options.method,
            "people": [options.honest, len(company.hostile)],
            "sessions_each": options.sessions,
            "flags": options.flags.split(),
            "honest_preference": preferences(replies, [STUDENT])[STUDENT.name],
            "accuracy_greedy": greedy_accuracy(chat),
            "wishes": wishes,
            "updates": loop.version,
            "learned_from": learned_from(loop.store),
            "seconds": round(time.monotonic() - began, 1),
        }
    finally:
        loop.close()


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kinds", nargs="+", choices=(NOBODY, *KINDS), default=[NOBODY, *KINDS], metavar="KIND"
    )
    parser.add_argument("--method", choices=METHODS, default="topk_select")
    parser.add_argument("--honest", type=int, default=2, help="number of honest students")
    parser.add_argument("--hostile", type=int, default=1, help="number of hostile people")
    parser.add_argument("--sessions", type=int, default=24, help="sessions of each person")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--flags", default="", help="further flags of the driver, in quotes")
    parser.add_argument("--model", type=Path, default=MODEL, help="folder of the initial model")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse(argv)
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    chat = ChatModel(str(options.model))
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for kind in options.kinds:
            print(json.dumps(trial(chat, kind, seed, options)), flush=True)


if __name__ == "__main__":
    main()
