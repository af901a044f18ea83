"""Run by run_ray_cluster.sh: checks that a run survives failures of a cluster of real Ray nodes while people talk.

Each node is its own `ray start`; its loss is `kill -9` of all its processes. Exit status 0 if all checks pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil

from claw_base.ports import free_port
from claw_lab import MODEL, ROOT
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.scripted_people import People, talk_until

BIN = Path(sys.executable).parent
JOB_SCRIPT = "openclaw-combine/run_tiny_openclaw_topk_select.sh"
ROLES_SCRIPT = "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh"
ON_CPU = {
    "ACTOR_GPUS": "0", "ROLLOUT_GPUS": "0", "PRM_GPUS": "0", "ROLLOUT_BACKEND": "embedded", "TP": "1",
    "JUDGE_BACKEND": "rules", "HF_CKPT": str(MODEL), "CONTEXT_LENGTH": "1024", "MAX_RESPONSE_LEN": "200",
    "MAX_TOKENS_PER_GPU": "4096", "GPUS_OF_NODE": "0",
}  # fmt: skip


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def eventually(condition: Callable[[], object], what: str, seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.HTTPError, FileNotFoundError, KeyError, IndexError):
            if condition():
                say(f"ok   {what}")
                return
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: did not happen in {seconds:g} s")
        time.sleep(0.5)


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills all processes that a process started, at once, as a power failure does."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
        for member in [psutil.Process(process.pid), *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    process.wait()


class Place:
    """A folder, ports and a token of one scenario, and its processes."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"ray-{name}-"))
        self.run_dir = self.folder / "run"
        self.port, self.ray_port, self.dashboard_port = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.jobs = f"http://127.0.0.1:{self.dashboard_port}"
        self.started: list[subprocess.Popen[bytes]] = []
        self.people = People()
        known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.env = {
            **known,  # a node knows nothing of the repository
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(16),
            "RAY_TMPDIR": str(self.folder / "ray"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start(self, *command: str, log: str, **env: str) -> subprocess.Popen[bytes]:
        with open(self.folder / log, "ab") as output:
            self.started.append(
                subprocess.Popen(
                    command, cwd=self.folder, env={**self.env, **env}, stdout=output, stderr=output,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )
            )  # fmt: skip
        return self.started[-1]

    def node(self, cpus: int, head: bool = False) -> subprocess.Popen[bytes]:
        words = [str(BIN / "ray"), "start", "--block", "--num-cpus", str(cpus), "--num-gpus", "0"]
        words += [
            "--object-store-memory",
            "100000000",
            "--disable-usage-stats",
            "--node-ip-address",
            "127.0.0.1",
        ]
        if head:
            words += ["--head", "--port", str(self.ray_port), "--dashboard-port", str(self.dashboard_port)]
        else:
            words += ["--address", f"127.0.0.1:{self.ray_port}"]
        return self.start(*words, log="nodes.log")

    def ray_job(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a `ray job` command; repeats it until the head's job agent is available."""
        command = [str(BIN / "ray"), "job", verb, "--address", self.jobs, *words]
        for _ in range(20):
            done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True)
            if "No available agent" not in done.stdout + done.stderr:
                break
            time.sleep(3)
        return done

    def submit(self, name: str) -> None:
        settings = {"PORT": str(self.port), "RUN_DIR": str(self.run_dir), "VENV": sys.prefix}
        words = [f"{key}={value}" for key, value in settings.items()]
        script = ["bash", str(ROOT / JOB_SCRIPT), "--batch-timeout", "2"]
        done = self.ray_job("submit", "--no-wait", "--submission-id", name, "--", "env", *words, *script)
        assert done.returncode == 0, done.stderr

    def refused(self, *words: str) -> str:
        """Submits a job that fails at once; returns its output."""
        done = self.ray_job("submit", *words)
        assert done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def version(self) -> int:
        return int(httpx.get(f"{self.url}/status", timeout=10).json()["weight_version"])

    def pids(self, role: str) -> list[int]:
        records = httpx.get(f"{self.url}/admin/processes", timeout=10).json()
        return [one["pid"] for one in records if one["role"] == role]

    def training_log(self) -> str:
        return (self.run_dir / "logs" / "training.log").read_text()

    def learns(self, what: str) -> None:
        before = self.version()
        eventually(lambda: self.version() >= before + 2, what)

    def serves(self, what: str) -> None:
        answered = len(self.people.seen)
        eventually(lambda: len(self.people.seen) >= answered + 5, what)

    def nothing_left(self) -> bool:
        folder = str(self.run_dir)
        left = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            if any(folder in word for word in process.info["cmdline"] or ()):
                left.append(process.info["pid"])
        return not left

    @contextlib.contextmanager
    def talking(self) -> Iterator[None]:
        """Lets two people talk until the block ends; none of their requests may fail."""
        done = threading.Event()

        async def talk() -> None:
            stop = asyncio.Event()
            clients = [ChatClient(self.url) for _ in range(2)]
            talks = [
                asyncio.create_task(talk_until(stop, client, seed, self.people))
                for seed, client in enumerate(clients)
            ]
            while not done.is_set():
                await asyncio.sleep(0.2)
            stop.set()
            await asyncio.gather(*talks)

        thread = threading.Thread(target=lambda: asyncio.run(talk()))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
        say(f"{len(self.people.seen)} answers, {len(self.people.failures)} failed requests")
        if self.people.failures:
            raise SystemExit(f"requests failed: {self.people.failures[:3]}")

    def close(self) -> None:
        for process in self.started:
            kill_tree(process)
        stop = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(self.run_dir), "--stop"]
        subprocess.run(stop, env={**os.environ, "PYTHONPATH": str(ROOT / "slime")}, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def below(pid: int, node: subprocess.Popen[bytes]) -> bool:
    """Returns whether a process runs on that node."""
    return node.pid in [parent.pid for parent in psutil.Process(pid).parents()]


def jobs(place: Place) -> None:
    """Checks a job that serves on one node and trains on another, and loses the latter, then Ray itself."""
    head, worker = place.node(0, head=True), None
    eventually(lambda: httpx.get(f"{place.jobs}/api/version").status_code in (200, 401), "Ray's head answers")
    worker = place.node(4)
    refusal = place.refused("--working-dir", str(ROOT), "--", "bash", JOB_SCRIPT)
    assert "set RUN_DIR (and SAVE_CKPT) to a folder that stays" in refusal, refusal
    say("ok   a run folder in Ray's copy of the repository is refused")
    place.submit("one")
    eventually(lambda: httpx.get(f"{place.url}/readyz").status_code == 200, "the submitted job serves")
    with place.talking():
        place.learns("it learns")
        assert below(place.pids("trainer")[0], worker), "the trainer lies on the other node"
        gateway = place.pids("gateway")
        assert psutil.Process(gateway[0]).nice() == psutil.Process().nice(), (
            "Ray's workers are nicer, servers are not"
        )
        httpx.put(f"{place.url}/admin/judges", json={"workers": 3}).raise_for_status()
        eventually(lambda: len(place.pids("judge")) == 3, "two judges more")
        httpx.put(f"{place.url}/admin/judges", json={"workers": 1}).raise_for_status()
        eventually(lambda: len(place.pids("judge")) == 1, "two judges less")
        kill_tree(worker)
        eventually(
            lambda: "is lost: training waits for a replacement" in place.training_log(),
            "the lost node is named",
        )
        place.serves("answers go on without it")
        worker = place.node(4)
        place.learns("it learns on another node")
        kill_tree(head)
        kill_tree(worker)
        place.serves("answers go on without any Ray")
        head = place.node(0, head=True)
        eventually(lambda: httpx.get(f"{place.jobs}/api/version").status_code in (200, 401), "another head")
        place.node(4)
        eventually(lambda: not place.pids("driver"), "the first job's driver is gone")
        place.submit("two")
        place.learns("the same run submitted again goes on")
        assert place.pids("gateway") == gateway, "the gateway was adopted"
    place.ray_job("stop", "two")
    eventually(place.nothing_left, "ray job stop leaves nothing of the run", 30)


def roles(place: Place) -> None:
    """Checks the same script as first and second machine; Ray fails on the first, and both continue."""
    env = {**ON_CPU, "HOST": "127.0.0.1", "PORT": str(place.port), "RUN_DIR": str(place.run_dir)}
    env |= {"VENV": sys.prefix, "MASTER_ADDR": "127.0.0.1", "RAY_PORT": str(place.ray_port)}
    env |= {"ROLLOUT_ARGS": "--batch-timeout 2 --rollout-batch-size 4 --save-interval 1"}
    script = ["bash", str(ROOT / ROLES_SCRIPT)]
    first = place.start(*script, log="first.log", **env, NODE_RANK="0")
    second = place.start(*script, log="second.log", **env, MLP_ROLE_INDEX="1")
    eventually(lambda: httpx.get(f"{place.url}/readyz").status_code == 200, "both machines together serve")
    with place.talking():
        place.learns("they learn")
        gateway, driver = place.pids("gateway"), place.pids("driver")
        for process in psutil.Process(first.pid).children(recursive=True):
            if process.name() in ("raylet", "gcs_server"):
                process.kill()
        eventually(
            lambda: "and is started again" in (place.folder / "first.log").read_text(), "Ray is started again"
        )
        eventually(lambda: place.pids("driver") not in ([], driver), "another driver has joined it")
        place.learns("they learn again")
        assert place.pids("gateway") == gateway, "the gateway went on"
    first.terminate()
    eventually(lambda: first.poll() is not None and second.poll() is not None, "both scripts have ended", 60)
    eventually(place.nothing_left, "they leave nothing of the run", 30)


def main() -> None:
    for scenario in (jobs, roles):
        if sys.argv[1:] and scenario.__name__ not in sys.argv[1:]:
            continue
        say(f"--- {scenario.__name__}: {(scenario.__doc__ or '').strip()}")
        place = Place(scenario.__name__)
        try:
            scenario(place)
        except (SystemExit, AssertionError):
            for log in [*place.folder.glob("*.log"), *place.run_dir.glob("logs/*.log")]:
                print(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            raise
        finally:
            place.close()
    say("all of it held")


if __name__ == "__main__":
    main()
