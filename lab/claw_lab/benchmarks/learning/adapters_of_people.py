"""Several people with opposite wishes on one base: an adapter each against one shared policy, in the real loop.

`bash lab/run.sh benchmarks.learning.adapters_of_people` starts the hybrid's launch script, once with --train-adapters and
once without, and lets scripted users with named keys talk at the same time. It prints one JSON line a run: for each
person the sessions until 0.8 of fresh replies please, the shares along the way, and the seconds. `--people` names tastes;
`--alone` measures each of them in a run of their own too."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from claw_lab import ROOT
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.demo import Learning, talk
from openclaw_test.loop.measure import look
from openclaw_test.loop.real_loop import running_loop
from openclaw_test.people.scripted_user import ScriptedUser
from openclaw_test.people.tastes import BY_NAME

SCRIPT = ROOT / "openclaw-combine" / "run_tiny_openclaw_topk_select.sh"
LORA = "--lora-rank 16 --lora-alpha 32 --lr 1e-2"
TARGET = 0.8


@dataclass
class Person:
    """One scripted user: their key is named after them, and so is their adapter.

    Attributes:
        shares: share of fresh replies that please, after each look.
        reached: sessions until two looks in a row reach the target; None: not yet.
    """

    name: str
    taste: str
    shares: list[float] = field(default_factory=list)
    sessions: int = 0
    reached: int | None = None

    @property
    def key(self) -> str:
        return f"key-of-{self.name}"

    def note(self, share: float) -> None:
        self.shares.append(round(share, 3))
        if self.reached is None and len(self.shares) > 1 and min(self.shares[-2:]) >= TARGET:
            self.reached = self.sessions


async def learn(url: str, person: Person, seed: int, options: argparse.Namespace) -> None:
    """Sessions of one person, `--at-once` at a time, with a look at fresh prompts every `--look-every` of them."""
    taste, learning = BY_NAME[person.taste], Learning()
    user = ScriptedUser(seed, taste=taste)
    async with ChatClient(url, api_key=person.key) as client:
        person.note((await look(client, n=options.fresh, seed=-1, taste=taste)).preference)
        while person.sessions < options.most:
            for _ in range(max(1, options.look_every // options.at_once)):
                numbers = range(person.sessions, person.sessions + options.at_once)
                await asyncio.gather(*(talk(client, user, n, learning, options.reading) for n in numbers))
                person.sessions += options.at_once
            seen = await look(client, n=options.fresh, seed=person.sessions, taste=taste)
            person.note(seen.preference)
            print(
                f"{person.name} ({person.taste}): {person.sessions} sessions, {seen.preference:.2f} please,"
                f" accuracy {seen.accuracy:.2f}",
                file=sys.stderr,
                flush=True,
            )


async def learn_together(url: str, people: Sequence[Person], options: argparse.Namespace) -> None:
    await asyncio.gather(*(learn(url, one, options.seed + n, options) for n, one in enumerate(people)))


def measure(kind: str, tastes: Sequence[str], options: argparse.Namespace) -> dict[str, object]:
    """One run of the real loop.

    Args:
        kind: `adapters`: an adapter for each person; `shared`: one policy for all, with LoRA of the same rank.
    """
    people = [Person(f"person{number}", taste) for number, taste in enumerate(tastes)]
    env = {
        "OPENCLAW_API_KEYS": ",".join(f"{one.name}={one.key}" for one in people),
        "LORA_ARGS": options.lora,
        "ROLLOUT_ARGS": f"--batch-timeout {options.batch_timeout} {options.flags}",
    }
    env |= {"TRAIN_ADAPTERS": "per-key"} if kind == "adapters" else {}
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="adapters-of-people-") as folder,
        running_loop(Path(folder) / "run", env=env, script=SCRIPT) as loop,
    ):
        ready = time.monotonic() - began
        asyncio.run(learn_together(loop.url, people, options))
        size = files_of_adapters(loop.run_dir)
    return {
        "kind": kind,
        "people": [
            {"taste": one.taste, "sessions_to_target": one.reached, "shares": one.shares} for one in people
        ],
        "target": TARGET,
        "sessions_each": options.most,
        "start_s": round(ready, 1),
        "seconds": round(time.monotonic() - began, 1),
        "adapter_files_mib": size,
    }


def files_of_adapters(run_dir: Path) -> float:
    """Size of the files of all adapters, in MiB."""
    files = (run_dir / "checkpoints" / "policies").rglob("*")
    return round(sum(path.stat().st_size for path in files if path.is_file()) / 2**20, 1)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--people", nargs="+", choices=sorted(BY_NAME), default=["student", "dasher"], metavar="TASTE"
    )
    parser.add_argument("--kinds", nargs="+", choices=("adapters", "shared"), default=["adapters", "shared"])
    parser.add_argument("--alone", action="store_true", help="measure each person in a run of their own too")
    parser.add_argument("--most", type=int, default=40, help="sessions of each person")
    parser.add_argument("--at-once", type=int, default=2, help="sessions of a person at a time")
    parser.add_argument("--look-every", type=int, default=4, help="sessions between two looks")
    parser.add_argument("--fresh", type=int, default=100, help="fresh prompts of a look")
    parser.add_argument("--reading", type=float, default=1.0, help="seconds between answer and next message")
    parser.add_argument("--batch-timeout", type=float, default=4.0, help="of the trainer, seconds")
    parser.add_argument("--lora", default=LORA, help="flags of the adapters, in quotes")
    parser.add_argument("--flags", default="", help="further flags of the driver, in quotes")
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
