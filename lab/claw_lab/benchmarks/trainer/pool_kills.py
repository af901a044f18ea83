"""Runs episodes in environments of a pool, while pools, the router and sandboxes are killed at random.

bash lab/run.sh benchmarks.trainer.pool_kills --episodes 2000 --parallel 64 --kills 20

Groups of four episodes. The agent is a script that always acts correctly, so every score other than 1 is a failure of the
infrastructure that was wrongly rewarded. Prints one line of JSON. Exits with 1 if a group was lost, a failure was
rewarded, or processes, mounts or files are left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from claw_base.ports import free_port
from slime.agents import Action, Observation, Outcome, PythonTool, Start, Task, ToolCall
from slime.errors import EnvironmentAway
from slime.pool import PoolEnvironment
from slime.sandbox import Workspace, run

GROUP = 4
ATTEMPTS = 3
SECONDS = 60.0


class Sums:
    """Environment: adds numbers in Python, stores the sum in a workspace, and reads it there in a new sandbox."""

    def __init__(self) -> None:
        self.python = PythonTool(seconds=SECONDS)
        self.workspace: Workspace | None = None

    async def reset(self, task: Task) -> Start:
        self.answer = str(task.label)
        self.workspace = await asyncio.to_thread(Workspace)
        return Start([{"role": "user", "content": str(task.prompt)}])

    async def step(self, action: Action) -> Observation:
        ran = await self.python.run(action.calls[0].arguments["code"])
        assert self.workspace is not None
        self.workspace.write("answer", ran.output.encode())
        return Observation([{"role": "tool", "content": ran.text()}])

    async def evaluate(self) -> Outcome:
        finished = await asyncio.to_thread(run, "cat answer", SECONDS, self.workspace)
        right = finished.output.strip() == self.answer
        return Outcome(float(right), right, {"found": finished.output})

    async def close(self) -> None:
        await self.python.close()
        if self.workspace is not None:
            await asyncio.to_thread(self.workspace.close)


@dataclass
class Servers:
    """Pools and a router. A process that dies is started again, as by slime's watcher."""

    folder: Path
    commands: list[list[str]]
    running: dict[int, asyncio.subprocess.Process] = field(default_factory=dict)
    seen: set[psutil.Process] = field(default_factory=set)

    async def keep(self) -> None:
        """Starts missing processes until it is cancelled."""
        while True:
            for index, command in enumerate(self.commands):
                process = self.running.get(index)
                if process is None or process.returncode is not None:
                    self.running[index] = await self._started(index, command)
            self.see()
            await asyncio.sleep(0.05)

    async def _started(self, index: int, command: list[str]) -> asyncio.subprocess.Process:
        with open(self.folder / f"log{index}", "ab") as log:  # noqa: ASYNC230
            env = {**os.environ, "TMPDIR": str(self.folder)}
            words = [sys.executable, "-m", "slime.pool", *command]
            return await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log, env=env)

    def see(self) -> None:
        """Records all child processes, sandboxes included."""
        for process in self.running.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                self.seen.update(psutil.Process(process.pid).children(recursive=True))

    def kill(self, what: str) -> bool:
        """Kills a random "server" or "sandbox" (the bubblewrap that a pool started). Returns whether there was
        one."""
        pids = [process.pid for process in self.running.values() if process.returncode is None]
        self.see()
        if what == "sandbox":
            pids = [child.pid for pid in pids for child in _children(pid)]
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(pids), signal.SIGKILL)
        return bool(pids)

    async def stop(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        for process in self.running.values():
            await process.wait()


@dataclass
class Counts:
    finished: int = 0
    groups: int = 0
    again: int = 0
    requeued: int = 0
    wrong: int = 0


async def episode(url: str, task: Task, counts: Counts) -> bool:
    """Runs an episode. A lost environment is replaced, as by an agent's generate function. Returns whether the episode
    got a score."""
    for _ in range(ATTEMPTS):
        environment = PoolEnvironment(url, patience=120.0)
        try:
            await environment.reset(task)
            await environment.step(
                Action("", (ToolCall("code_interpreter", {"code": f"print({task.prompt})"}),))
            )
            outcome = await environment.evaluate()
            counts.wrong += outcome.score != 1.0
            return True
        except EnvironmentAway:
            counts.again += 1
        finally:
            await environment.close()
    return False


async def group(url: str, number: int, places: asyncio.Semaphore, counts: Counts) -> None:
    """Runs a group of episodes. If an episode gets no score, the group starts again, as in slime."""
    task = Task(f"{number} + {number * 7}", number * 8)

    async def one() -> bool:
        async with places:
            return await episode(url, task, counts)

    while not all(await asyncio.gather(*(one() for _ in range(GROUP)))):
        counts.requeued += 1
    counts.finished += GROUP
    counts.groups += 1


async def killing(servers: Servers, counts: Counts, episodes: int, kills: int) -> list[str]:
    """Kills servers and sandboxes in turn, `kills` times, at random times spread evenly over the episodes."""
    killed: list[str] = []
    for number in range(kills):
        while counts.finished < episodes * (number + random.random()) / (kills + 1):
            await asyncio.sleep(0.02)
        what = ("server", "sandbox")[number % 2]
        while not servers.kill(what):
            await asyncio.sleep(0.02)
        killed.append(what)
    return killed


async def measured(episodes: int, parallel: int, kills: int, pools: int, folder: Path) -> dict[str, object]:
    ports = [free_port() for _ in range(1 + pools)]
    commands = [["--environment", f"{__file__}:Sums", "--port", str(port)] for port in ports[1:]]
    urls = ",".join(f"http://127.0.0.1:{port}" for port in ports[1:])
    servers = Servers(folder, [["--pools", urls, "--port", str(ports[0])], *commands])
    counts, began = Counts(), time.monotonic()
    keeping = asyncio.create_task(servers.keep())
    places, url = asyncio.Semaphore(parallel), f"http://127.0.0.1:{ports[0]}"
    try:
        groups = [group(url, number, places, counts) for number in range(episodes // GROUP)]
        killed, *_ = await asyncio.gather(killing(servers, counts, episodes, kills), *groups)
        seconds = time.monotonic() - began
    finally:
        keeping.cancel()
        servers.see()
        await servers.stop()
    _, alive = psutil.wait_procs(servers.seen, timeout=30)
    left = await asyncio.to_thread(_left, folder)
    return {
        "episodes": counts.finished,
        "groups_lost": episodes // GROUP - counts.groups,
        "infra_failures_rewarded": counts.wrong,
        "kills": len(killed),
        "sandboxes_killed": killed.count("sandbox"),
        "episodes_begun_again": counts.again,
        "groups_put_back": counts.requeued,
        "processes_left": len([one for one in alive if one.status() != psutil.STATUS_ZOMBIE]),
        "mounts_left": _mounts_below(folder),
        "files_left": left,
        "seconds": round(seconds, 1),
    }


def _left(folder: Path) -> list[str]:
    """Returns the files left in the folder of workspaces, after the cleanup that each pool does at its start."""
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    Workspace().close()
    tempfile.tempdir = None
    return [path.name for base in folder.glob("slime-workspaces-*") for path in base.iterdir()]


def _children(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children()
    return []


def _mounts_below(folder: Path) -> int:
    return Path("/proc/self/mounts").read_text().count(str(folder))


def main(argv: Sequence[str] | None = None) -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--episodes", type=int, default=2000)
    words.add_argument("--parallel", type=int, default=64)
    words.add_argument("--kills", type=int, default=20)
    words.add_argument("--pools", type=int, default=2)
    words.add_argument("--seed", type=int, default=0)
    args = words.parse_args(argv)
    random.seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        results = asyncio.run(measured(args.episodes, args.parallel, args.kills, args.pools, Path(folder)))
    print(json.dumps(results))
    bad = ("groups_lost", "infra_failures_rewarded", "processes_left", "mounts_left", "files_left")
    sys.exit(int(any(results[name] for name in bad)))


if __name__ == "__main__":
    main()
