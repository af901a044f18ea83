"""Compares an adapter for each of several people with opposite preferences with one shared policy, in the real loop.

`bash lab/run.sh benchmarks.learning.adapters_of_people` starts the hybrid's launch script, once with --train-adapters
and once without; scripted users with named keys talk at the same time. After some sessions, each user waits until
their turns are trained, so that sessions are comparable on machines of any speed. It prints one JSON line for each
run: for each person the sessions until 0.8 of fresh replies please, the shares over time, and the seconds. `--people`
names tastes; `--alone` also measures each of them in its own run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from claw_lab import ROOT
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.demo import Learning, talk
from openclaw_test.loop.measure import look
from openclaw_test.loop.real_loop import Loop, running_loop
from openclaw_test.people.scripted_user import ScriptedUser
from openclaw_test.people.tastes import BY_NAME, OPPOSITES

SCRIPT = ROOT / "openclaw-combine" / "run_tiny_openclaw_topk_select.sh"
LORA = "--lora-rank 16 --lora-alpha 32 --lr 1e-2"
TARGET = 0.8


@dataclass
class Person:
    """A scripted user; the key and the adapter have the same name.

    Attributes:
        seed: of the messages; the same in a run alone.
        shares: share of fresh replies that please, at each measurement.
        reached: sessions until two measurements in a row reach the target; None: not yet.
        accuracy: share of right replies at the last measurement.
        version: of the measured weights, of the adapter or of the shared policy.
    """

    name: str
    taste: str
    seed: int
    shares: list[float] = field(default_factory=list)
    sessions: int = 0
    reached: int | None = None
    accuracy: float = 0.0
    version: int = 0

    @property
    def key(self) -> str:
        return f"key-of-{self.name}"

    def note(self, share: float) -> None:
        self.shares.append(round(share, 3))
        if self.reached is None and len(self.shares) > 1 and min(self.shares[-2:]) >= TARGET:
            self.reached = self.sessions


_UNTRAINED = """
SELECT (SELECT COUNT(*) FROM turn WHERE key_name = :name AND state = 'answered')
     + (SELECT COUNT(*) FROM sample JOIN turn ON turn.id = turn_id
        WHERE key_name = :name AND sample.state IN ('ready', 'leased'))
"""


def untrained(run_dir: Path, name: str) -> int:
    """Returns the number of turns of the key `name` that wait for the judge or for a training step."""
    address = f"file:{run_dir}/buffer/buffer.db?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=30.0)) as database:
        return int(database.execute(_UNTRAINED, {"name": name}).fetchone()[0])


async def until_trained(run_dir: Path, person: Person) -> None:
    """Waits until all turns of a person are trained; raises TimeoutError after ten minutes."""
    async with asyncio.timeout(600.0):
        while untrained(run_dir, person.name):
            await asyncio.sleep(1.0)


async def learn(loop: Loop, person: Person, options: argparse.Namespace, is_over: Callable[[], bool]) -> None:
    """Runs the sessions of one person, `--at-once` at a time. After every `--look-every` sessions it waits for
    training and measures replies to fresh prompts."""
    taste, learning = BY_NAME[person.taste], Learning()
    user = ScriptedUser(person.seed, taste=taste)
    async with ChatClient(loop.url, api_key=person.key) as client:
        person.note((await look(client, n=options.fresh, seed=-1, taste=taste)).preference)
        while person.sessions < options.most and not is_over():
            for _ in range(max(1, options.look_every // options.at_once)):
                numbers = range(person.sessions, person.sessions + options.at_once)
                await asyncio.gather(*(talk(client, user, n, learning, options.reading) for n in numbers))
                person.sessions += options.at_once
            await until_trained(loop.run_dir, person)
            seen = await look(client, n=options.fresh, seed=person.sessions, taste=taste)
            person.note(seen.preference)
            person.accuracy = seen.accuracy
            status = await client.status()
            person.version = status.get("adapters", {}).get(person.name, status["weight_version"])
            print(
                f"{person.name} ({person.taste}): {person.sessions} sessions, {seen.preference:.2f} please,"
                f" accuracy {seen.accuracy:.2f}, version {person.version}",
                file=sys.stderr,
                flush=True,
            )


async def learn_together(
    loop: Loop, people: Sequence[Person], options: argparse.Namespace, to_the_end: bool
) -> None:
    """Runs the sessions of all people; returns when each has reached the target, or with `to_the_end` after all
    sessions, since others can undo it."""

    def is_over() -> bool:
        return not to_the_end and all(one.reached is not None for one in people)

    await asyncio.gather(*(learn(loop, one, options, is_over) for one in people))


def measure(kind: str, tastes: Sequence[str], options: argparse.Namespace) -> dict[str, object]:
    """Runs the real loop once and returns its measurements.

    Args:
        kind: `adapters`: an adapter for each person; `shared`: one policy for all, with LoRA of the same rank.
    """
    people = [
        Person(f"person{number}", taste, options.seed + tastes[:number].count(taste))
        for number, taste in enumerate(tastes)
    ]
    env = {
        "OPENCLAW_API_KEYS": ",".join(f"{one.name}={one.key}" for one in people),
        "LORA_ARGS": options.lora,
        "ROLLOUT_ARGS": f"--batch-timeout {options.batch_timeout} {options.flags}",
    }
    env |= {"TRAIN_ADAPTERS": "per-key"} if kind == "adapters" else {}
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="adapters-of-people-") as folder,
        running_loop(Path(folder) / "run", start_s=600.0, env=env, script=SCRIPT) as loop,
    ):
        ready = time.monotonic() - began
        asyncio.run(learn_together(loop, people, options, to_the_end=kind == "shared"))
        size = files_of_adapters(loop.run_dir)
    return {
        "kind": kind,
        "people": [
            {
                "taste": one.taste,
                "sessions_to_target": one.reached,
                "sessions": one.sessions,
                "shares": one.shares,
                "accuracy": one.accuracy,
                "version": one.version,
            }
            for one in people
        ],
        "target": TARGET,
        "seed": options.seed,
        "start_s": round(ready, 1),
        "seconds": round(time.monotonic() - began, 1),
        "adapter_files_mib": size,
    }


def files_of_adapters(run_dir: Path) -> float:
    """Returns the size of the files of all adapters, in MiB."""
    files = (run_dir / "checkpoints" / "policies").rglob("*")
    return round(sum(path.stat().st_size for path in files if path.is_file()) / 2**20, 1)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--people",
        nargs="+",
        choices=sorted(BY_NAME),
        default=[taste.name for taste in OPPOSITES],
        metavar="TASTE",
    )
    parser.add_argument("--kinds", nargs="+", choices=("adapters", "shared"), default=["adapters", "shared"])
    parser.add_argument("--alone", action="store_true", help="also measure each person in a separate run")
    parser.add_argument("--most", type=int, default=24, help="sessions of each person")
    parser.add_argument("--at-once", type=int, default=2, help="concurrent sessions of a person")
    parser.add_argument("--look-every", type=int, default=2, help="sessions between two measurements")
    parser.add_argument("--fresh", type=int, default=50, help="fresh prompts per measurement")
    parser.add_argument("--reading", type=float, default=1.0, help="seconds between answer and next message")
    parser.add_argument(
        "--batch-timeout",
        type=float,
        default=4.0,
        help="seconds after which the trainer trains an incomplete batch",
    )
    parser.add_argument("--lora", default=LORA, help="flags of the adapters, in quotes")
    parser.add_argument(
        "--flags", default="--rollout-batch-size 8", help="further flags of the driver, in quotes"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse(argv)
    runs = [(kind, options.people) for kind in options.kinds]
    runs += [("adapters", [taste]) for taste in options.people] if options.alone else []
    for kind, tastes in runs:
        print(json.dumps(measure(kind, tastes, options)), flush=True)


if __name__ == "__main__":
    main()
