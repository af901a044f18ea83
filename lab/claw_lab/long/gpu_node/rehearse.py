"""Starts launch scripts on a machine with simulated GPUs, talks to the served models, and checks that new weights go
live.

    python rehearse.py FOLDER PYTHON_OF_SGLANG [REHEARSAL...]

FOLDER contains a model in `first`. Exit status 1 if a rehearsal failed; each prints its observations.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from claw_lab import ROOT
from claw_lab.long.gpu_node.machine import environment

EIGHT = "../openclaw-combine/run_qwen3_4b_openclaw_topk_select.sh"
ONE = "../openclaw-combine/run_qwen3_4b_openclaw_topk_select_1gpu.sh"
SMALL = "../openclaw-combine/run_qwen3_0.6b_openclaw_combine.sh"
LANGUAGE_MODEL = ROOT / "models" / "SmolLM2-135M-Instruct"
START_SECONDS, UPDATE_SECONDS, STOP_SECONDS = 400.0, 300.0, 150.0  # a stop may save a checkpoint first
FEW = (
    "--rollout-batch-size",
    "2",
    "--bf16",
)  # small batches; in the default dtype of GPUs
WISHES = (
    "No. Write it in one sentence, not a list.",
    "Thanks. And 5 + 6?",
    "No, please no list. What is 2 + 2?",
)


@dataclass
class Rehearsal:
    """A command and its expected results: a served model, and `versions` updates. `kill`: the engine's own processes
    are killed with -9 while people talk, and must restart. `measured`: names of metrics that an update must have."""

    script: str
    flags: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    gpus: int = 8
    versions: int = 0
    kill: bool = False
    measured: str = ""


RULES = {"PRM_GPUS": "0"}  # the tiny model cannot judge: the rules do, if turns must be judged
REHEARSALS = {
    "as printed": Rehearsal(EIGHT),
    "weights": Rehearsal(EIGHT, FEW, RULES, versions=3, kill=True),
    "megatron": Rehearsal(
        EIGHT, (*FEW, "--update-weight-transport", "tensor"), {**RULES, "MEGATRON": "1", "TRAIN_TP": "2"}, versions=2
    ),
    "one GPU": Rehearsal(ONE, FEW, {}, gpus=1, versions=2),
    "language model": Rehearsal(SMALL, FEW, {"HF_CKPT": str(LANGUAGE_MODEL)}, gpus=1, versions=2),
    "gate": Rehearsal(
        SMALL, FEW, {"HF_CKPT": str(LANGUAGE_MODEL), "GATE_ENGINE": "cpu"}, gpus=1, versions=1, measured="gate/obeyed"
    ),
}  # fmt: skip


class Served:
    """The gateway of a run."""

    def __init__(self, port: int) -> None:
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120.0, trust_env=False)

    def model(self) -> str:
        return str(self.http.get("/v1/models").raise_for_status().json()["data"][0]["id"])

    def version(self) -> int:
        return int(self.http.get("/status").raise_for_status().json()["weight_version"])

    def ask(self, messages: list[dict[str, str]], session: str, tokens: int = 60) -> tuple[str, int]:
        """Streams an answer; returns its text and the number of its chunks. Raises RuntimeError if it does not
        end."""
        body = {"model": self.model(), "messages": messages, "stream": True, "max_tokens": tokens}
        text, pieces, done = "", 0, False
        with self.http.stream(
            "POST", "/v1/chat/completions", json=body, headers={"X-Session-Id": session}
        ) as lines:
            if lines.status_code != 200:
                raise RuntimeError(f"{lines.status_code}: {lines.read().decode()}")
            for line in lines.iter_lines():
                done = done or line == "data: [DONE]"
                if line.startswith("data: {") and (choices := json.loads(line[6:])["choices"]):
                    piece = choices[0]["delta"].get("content") or ""
                    text, pieces = text + piece, pieces + bool(piece)
        if not done:
            raise RuntimeError(f"a stream of {session} ended without its end: {text!r}")
        return text, pieces

    def converse(self, session: str) -> int:
        """Sends four turns, each answered by a person's next message; returns the number of chunks of the answers."""
        messages = [{"role": "user", "content": "What is 3 + 4?"}]
        pieces = 0
        for wish in WISHES:
            text, came = self.ask(messages, session)
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": wish}]
            pieces += came
        return pieces + self.ask(messages, session)[1]


class Run:
    """A started launch script, with its output in `log`."""

    def __init__(self, folder: Path, rehearsal: Rehearsal, sglang: str) -> None:
        folder.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = folder / "log"
        self.command = ["bash", rehearsal.script, *rehearsal.flags]
        self.env = {
            **environment(folder, sglang, rehearsal.gpus), "HF_CKPT": str(folder.parent / "first"), **rehearsal.env,
            "RUN_DIR": str(folder / "run"), "PORT": str(self.port),
        }  # fmt: skip

    @contextmanager
    def started(self) -> Iterator[Served]:
        """Starts the script, and ends it by SIGTERM after the block; then no process of it may remain."""
        began = time.monotonic()
        with self.log.open("a") as log:
            script = subprocess.Popen(
                self.command, cwd=ROOT / "slime", env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self.wait_served(script, began)
            yield Served(self.port)
        finally:
            family = psutil.Process(script.pid).children(recursive=True) if script.poll() is None else []
            script.send_signal(signal.SIGTERM)
            script.wait(STOP_SECONDS)
            left = [
                process for process in psutil.wait_procs(family, timeout=STOP_SECONDS)[1] if lives(process)
            ]
            if left:
                raise RuntimeError(f"left behind: {[process.name() for process in left]}")

    def kill_engine(self) -> None:
        """Kills SGLang's own processes; their launcher notices and exits, and the watcher starts another one."""
        record = json.loads((Path(self.env["RUN_DIR"]) / "processes" / "engine-0.json").read_text())
        family = psutil.Process(record["pid"]).children(recursive=True)
        for process in family:
            process.kill()
        print(f"  killed {len(family)} processes of the engine", flush=True)

    def measured(self, name: str) -> list[float]:
        """Returns the metric of all updates so far. Raises RuntimeError if none has it."""
        lines = (Path(self.env["RUN_DIR"]) / "metrics.jsonl").read_text().splitlines()
        values = [float(row[name]) for row in map(json.loads, lines) if name in row]
        if not values:
            raise RuntimeError(f"no update has {name} among its metrics")
        return values

    def wait_served(self, script: subprocess.Popen[bytes], began: float) -> None:
        log_size = len(self.log.read_text())
        while "gateway ready" not in self.log.read_text()[log_size - 1 if log_size else 0 :]:
            if script.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(
                    f"no model is served; the end of {self.log}:\n{self.log.read_text()[-3000:]}"
                )
            time.sleep(0.5)
        print(f"  served after {time.monotonic() - began:.0f} s", flush=True)


def lives(process: psutil.Process) -> bool:
    """Returns whether the process exists and is not a zombie that its new parent has yet to reap."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def talk_until(served: Served, versions: int) -> None:
    """Runs conversations one after another, next to one with long answers, until `versions` versions went live."""
    began, turns, pieces, failures = time.monotonic(), 0, 0, []
    stop = threading.Event()

    def resume() -> None:
        while not stop.is_set():
            try:
                served.ask([{"role": "user", "content": "What is 3 + 4?"}], f"long-{time.monotonic()}", 400)
            except Exception as error:  # reported at the end: no request may fail because of an update
                failures.append(error)

    neighbour = threading.Thread(target=resume)
    neighbour.start()
    try:
        while turns == 0 or served.version() < versions:
            if time.monotonic() - began > UPDATE_SECONDS:
                raise RuntimeError(f"version {served.version()} after {UPDATE_SECONDS:g} s, not {versions}")
            pieces += served.converse(f"talk-{turns}")
            turns += 4
    finally:
        stop.set()
        neighbour.join()
    if failures:
        raise RuntimeError(f"{len(failures)} answers failed, the first: {failures[0]}")
    if pieces < 2 * turns:
        raise RuntimeError(f"{turns} answers came in {pieces} pieces: no stream")
    print(
        f"  version {served.version()}, {turns} answers in {pieces} pieces, {time.monotonic() - began:.0f} s",
        flush=True,
    )


def rehearse(folder: Path, rehearsal: Rehearsal, sglang: str) -> None:
    run = Run(folder, rehearsal, sglang)
    with run.started() as served:
        print(f"  model {served.model()}", flush=True)
        talk_until(served, rehearsal.versions)
        if rehearsal.kill:
            killer = threading.Timer(5.0, run.kill_engine)
            killer.start()
            talk_until(served, served.version() + 2)
            killer.join()
        reached = served.version()
    if not rehearsal.versions:
        return
    if rehearsal.measured:
        print(f"  {rehearsal.measured}: {run.measured(rehearsal.measured)}", flush=True)
    with run.started() as served:  # the same command continues with the same weights
        if served.version() < reached:
            raise RuntimeError(f"version {served.version()} after a restart, {reached} before")
        talk_until(served, reached + 1)


def main() -> int:
    work, sglang, *names = sys.argv[1:]
    failed = []
    # Leaves no process running either
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for name in names or REHEARSALS:
        rehearsal = REHEARSALS[name]
        print(
            f"{name}: {Path(rehearsal.script).name} {' '.join(rehearsal.flags)} {rehearsal.env or ''}",
            flush=True,
        )
        try:
            rehearse(Path(work) / name.replace(" ", "_"), rehearsal, sglang)
        except Exception as error:
            failed.append(name)
            print(f"  FAILED: {error}", flush=True)
    print(f"{len(names or REHEARSALS) - len(failed)} of {len(names or REHEARSALS)} rehearsals passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
