"""Counts crosstalk between people with an adapter each, in random turns with marked words. Prints one JSON line.

    bash lab/run.sh benchmarks.crosstalk.random_turns [--turns 100000] [--save FILE]

A real gateway, store and judge run in processes of their own, and are killed with `kill -9` at random. The engine and
the trainer are in this process and have no model: an adapter remembers the words of its batches, the engine sees the
words of every prompt. Batches are leased, prepared, committed and forgotten by the trainer's real hooks. People with
named keys, several people with one key, and equal names under several keys begin with the same words, use the same
session ids and each other's ids; they give feedback, end and delete sessions, disconnect, and are forgotten.

Crosstalk is a word of a person in another's prompt, answer, page, row of the store, adapter or batch; any word in a
log; a word of a forgotten person after the command returned; a word of a request with X-Train: off in any file. Not
covered: the real trainer, and caches of a real engine. Exit status 1: there was crosstalk, or a request failed
although nothing was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from claw_base.run_folder import forgetting
from claw_lab import MODEL, environment
from claw_lab.benchmarks.crosstalk.audit import LOGS, audit_files, audit_store
from claw_lab.benchmarks.crosstalk.engine import RememberingEngine
from claw_lab.benchmarks.crosstalk.people import ADMIN, COMMON, SERVED, Person, Town, key_of
from claw_lab.benchmarks.crosstalk.trainer import METHOD, WordTrainer
from claw_lab.benchmarks.crosstalk.words import Findings, Owner, Words
from claw_lab.benchmarks.faults.gateway_process import GatewayProcess
from openclaw.formats.tokenizer import Tokenizer

KEYS = tuple(f"key{number}" for number in range(12))
SHARED_USER, FORGOTTEN_USER = "carol", "dave"
"""Names in requests: one under several keys, and one of the common key alone, who can be forgotten because no adapter
learns from that key."""
FORGOTTEN_S, SETTLED_S = 600.0, 120.0


class Judge:
    """A judge worker in a process of its own."""

    def __init__(self, run_dir: Path) -> None:
        self._command = [
            *(sys.executable, "-m", "openclaw.judge.worker", "--rl-buffer-dir", str(run_dir / "buffer")),
            *("--method-path", METHOD, "--model-path", str(MODEL), "--worker-name", "judge"),
        ]
        self._log = run_dir / LOGS / "judge.log"

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(self._command, env=environment(), stderr=log, stdout=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Run:
    """One run: its processes, and its results."""

    def __init__(self, run_dir: Path, options: argparse.Namespace) -> None:
        self.run_dir, self.options = run_dir, options
        self.chance = random.Random(options.seed)
        self.findings = Findings()
        self.words = Words(Tokenizer(MODEL), random.Random(options.seed + 1))
        self.engine = RememberingEngine(self.words, self.findings, options.loaded)
        self.trainer = WordTrainer(run_dir, self.words, self.engine, self.findings)
        self.judge = Judge(run_dir)
        self.events: Counter[str] = Counter()
        self.busy: set[int] = set()
        self.closed: set[str] = set()
        self.rows = 0

    async def main(self) -> dict[str, Any]:
        """Returns the results."""
        for folder in ("buffer", LOGS):
            (self.run_dir / folder).mkdir(mode=0o700)
        # a run with this file has a driver
        (self.run_dir / "arguments.json").write_text(json.dumps({"train_adapters": "per-key"}))
        await self.engine.start()
        self.gateway = GatewayProcess(
            self.engine.url,
            self.run_dir / "buffer",
            self.run_dir / LOGS / "gateway.log",
            self._env(),
            flags=["--memory"],
        )
        await asyncio.to_thread(self.gateway.start)
        self.judge.start()
        try:
            async with Town(
                self.gateway.url, self.words, self.engine, self.findings, self.chance
            ) as self.town:
                return await self._run()
        finally:
            self.judge.kill()
            await asyncio.to_thread(self.gateway.stop)
            self.engine.stop()

    def _env(self) -> dict[str, str]:
        named = ",".join(f"{name}={key_of(name)}" for name in KEYS)
        return {
            "RUN_DIR": str(self.run_dir), "TRAIN_ADAPTERS": "per-key", "OPENCLAW_API_KEYS": named,
            "SGLANG_API_KEY": COMMON, "OPENCLAW_ADMIN_KEY": ADMIN, "SERVED_MODEL_NAME": SERVED,
        }  # fmt: skip

    async def _run(self) -> dict[str, Any]:
        began, cpu = time.monotonic(), time.process_time()
        self.latest = began + 60 * self.options.minutes
        for key in KEYS:
            self.town.welcome(Owner(key))
            self.town.welcome(Owner(key, SHARED_USER))
        for user in (SHARED_USER, FORGOTTEN_USER):
            self.town.welcome(Owner("", user))
        training = asyncio.create_task(self._train())
        tasks = [asyncio.create_task(self._talk()) for _ in range(self.options.at_once)]
        tasks.append(asyncio.create_task(self._disturb()))
        try:
            await asyncio.gather(*tasks)
            await self._settle()
        finally:
            self.over = True
            await training
        self.rows = await asyncio.to_thread(audit_store, self.run_dir / "buffer", self.words, self.findings)
        files = await asyncio.to_thread(audit_files, self.run_dir, self.words, self.findings)
        used = {"seconds": round(time.monotonic() - began), "processor_s": round(time.process_time() - cpu)}
        return self._results() | files | used

    over = False

    @property
    def _is_done(self) -> bool:
        return self.town.turns >= self.options.turns or time.monotonic() > self.latest

    async def _talk(self) -> None:
        """Lets one free person after another act."""
        while not self._is_done:
            free = [
                at
                for at, one in enumerate(self.town.people)
                if at not in self.busy and not _names(one) & self.closed
            ]
            if not free:
                await asyncio.sleep(0.01)
                continue
            at = self.chance.choice(free)
            self.busy.add(at)
            try:
                await self.town.act(self.town.people[at])
            finally:
                self.busy.discard(at)

    async def _train(self) -> None:
        while not self.over:
            if not await asyncio.to_thread(self.trainer.work):
                await asyncio.sleep(0.5)

    async def _disturb(self) -> None:
        """Kills, forgets and audits, each after a number of turns."""
        kinds = {
            "forgotten": (self._forget, self.options.forget_every),
            "gateway killed": (self._kill_gateway, self.options.kill_every),
            "serving worker killed": (self._kill_worker, self.options.kill_every),
            "judge killed": (self._kill_judge, self.options.kill_every),
            "audits": (self._audit, self.options.audit_every),
        }
        due = {name: every * (0.3 + 0.1 * at) for at, (name, (_, every)) in enumerate(kinds.items())}
        while not self._is_done:
            for name, (work, every) in kinds.items():
                if self.town.turns >= due[name] and not self._is_done:
                    await work()
                    self.events[name] += 1
                    due[name] += every
            await asyncio.sleep(0.2)

    async def _forget(self) -> None:
        """Forgets a person, who then begins again with other words. Sometimes the gateway is killed meanwhile."""
        name = self.chance.choice([*KEYS, FORGOTTEN_USER])
        self.closed.add(name)
        try:
            while any(name in _names(self.town.people[at]) for at in self.busy):
                await asyncio.sleep(0.01)
            killing = self.chance.random() < 0.25
            killed = asyncio.create_task(self._kill_gateway(0.01)) if killing else None
            path = f"/admin/persons/{name}/content"
            status, text = await self.town.send("DELETE", path, {"Authorization": f"Bearer {ADMIN}"})
            if status not in (200, 404):
                self.town.failed("forget", status, text)
            if killed is not None:
                await killed
                self.events["gateway killed during a deletion"] += 1
            async with asyncio.timeout(FORGOTTEN_S):
                while forgetting.is_waiting(self.run_dir, name):
                    await asyncio.sleep(0.02)
            gone = [one for one in self.town.people if one.owner.person == name]
            self.words.forget({one.owner for one in gone})
            for one in gone:
                self.town.begin_again(one)
        finally:
            self.closed.discard(name)

    async def _kill_gateway(self, after_s: float = 0.0) -> None:
        """Kills the gateway with its supervisor and its spare, and starts it again."""
        await asyncio.sleep(after_s)
        await asyncio.to_thread(self.gateway.kill)
        await asyncio.to_thread(self.gateway.start)

    async def _kill_worker(self) -> None:
        """Kills the process that serves; a spare takes over."""
        status, text = await self.town.send("GET", "/admin/processes", {"Authorization": f"Bearer {ADMIN}"})
        family = {one.pid for one in psutil.Process(self.gateway.process.pid).children(recursive=True)}
        for one in json.loads(text) if status == 200 else ():
            if one["role"] == "gateway" and one["pid"] in family:
                os.kill(one["pid"], signal.SIGKILL)

    async def _kill_judge(self) -> None:
        await asyncio.to_thread(self.judge.kill)
        self.judge.start()

    async def _audit(self) -> None:
        await asyncio.to_thread(audit_store, self.run_dir / "buffer", self.words, self.findings)
        print(
            f"{self.town.turns} turns: {dict(self.findings.counts) or 'no crosstalk'}",
            file=sys.stderr,
            flush=True,
        )

    async def _settle(self) -> None:
        """Returns when every answered turn is judged and no batch is due, or after `SETTLED_S`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S):
                while await asyncio.to_thread(self.trainer.is_behind):
                    await asyncio.sleep(0.2)

    def _results(self) -> dict[str, Any]:
        engine, trainer = self.engine, self.trainer
        return {
            "turns": self.town.turns,
            "people": len(self.town.people),
            "crosstalk": sum(self.findings.counts.values()),
            "places": dict(self.findings.counts),
            "examples": self.findings.examples,
            "acts": dict(self.town.acts),
            "events": dict(self.events),
            "failures": dict(self.town.failures),
            "last_failure": self.town.last_failure,
            "prompts": engine.requests,
            "answered_by_adapters": engine.by_adapters,
            "adapters_loaded": engine.loads,
            "adapters_evicted": engine.evicted,
            "batches": trainer.steps,
            "samples": trainer.samples,
            "words_said": len(self.words.owners),
            "words_forgotten": len(self.words.gone),
            "rows_with_words": self.rows,
        }


def _names(person: Person) -> set[str]:
    return {person.owner.key, person.owner.person}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Runs in a temporary folder; returns the results."""
    with tempfile.TemporaryDirectory(prefix="crosstalk-") as folder:
        return asyncio.run(Run(Path(folder), options).main())


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=100_000, help="answered turns")
    parser.add_argument("--minutes", type=float, default=60.0, help="end earlier, after these minutes")
    parser.add_argument("--at-once", type=int, default=8, help="people who act at the same time")
    parser.add_argument("--loaded", type=int, default=4, help="adapters that the engine holds, of 12")
    parser.add_argument(
        "--kill-every", type=int, default=2500, help="turns between two kills of the same kind"
    )
    parser.add_argument("--forget-every", type=int, default=500, help="turns between two forgotten people")
    parser.add_argument(
        "--audit-every", type=int, default=10_000, help="turns between two searches of the store"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, help="also write the results to this file")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    result = run(options)
    print(json.dumps(result))
    if options.save is not None:
        options.save.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    return 1 if result["crosstalk"] or result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
