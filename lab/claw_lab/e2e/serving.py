"""Runs the real gateway with its scripted engine, a relay in front of it, and a new weight version every second."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from claw_base.ports import free_port
from claw_lab import MODEL, environment
from claw_lab.e2e.relay import Passage, Relay
from openclaw.store import RolloutStore
from openclaw.types import Turn

READY_SECONDS = 180.0
SWITCH_SECONDS = 1.0
"""Seconds between changes of the weight version: an answer of 3 seconds spans several."""


@dataclass(frozen=True)
class EngineCall:
    """One sampled answer of the engine; spans are (version, start, end), times are those of time.monotonic()."""

    completion_id: str
    ids: list[int]
    spans: list[tuple[int, int, int]]
    began: float
    ended: float


class Serving:
    """A running gateway with its engine; `folder` holds its store and logs, `url` is the address for OpenClaw."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.engine_port, self.port = folder, free_port(), free_port()
        self.relay = Relay(self.port)
        self.url = f"http://127.0.0.1:{self.relay.port}"
        self.versions = 0
        self._children: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()

    def __enter__(self) -> Serving:
        for name, command in (("engine", self._engine_command()), ("gateway", self._gateway_command())):
            with open(self.folder / f"{name}.log", "ab") as log:
                self._children.append(
                    subprocess.Popen(
                        [sys.executable, *command], env=environment(), stdout=log, stderr=subprocess.STDOUT
                    )
                )
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=2.0).status_code == 200:
                    self.relay.__enter__()
                    threading.Thread(target=self._switch, daemon=True).start()
                    return self
            time.sleep(0.2)
        self.__exit__()
        log_text = (self.folder / "gateway.log").read_text(errors="replace")
        raise RuntimeError(f"the gateway did not come up: {log_text[-2000:]}")

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self.relay.__exit__()
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait(20)

    @property
    def engine_url(self) -> str:
        return f"http://127.0.0.1:{self.engine_port}"

    def turns(self) -> list[Turn]:
        """Returns all stored turns, oldest first."""
        store = RolloutStore(self.folder / "buffer")
        try:
            statuses = store.status.recent(10_000)[::-1]
            return [
                turn
                for status in statuses
                if (turn := store.turns.get_by_completion(status.completion_id)) is not None
            ]
        finally:
            store.close()

    def engine_calls(self) -> list[EngineCall]:
        """Returns all sampled answers, in the order in which they ended."""
        answer = httpx.get(f"{self.engine_url}/calls", timeout=10.0)
        answer.raise_for_status()
        return [
            EngineCall(**{**one, "spans": [tuple(span) for span in one["spans"]]}) for one in answer.json()
        ]

    def passages(self) -> list[Passage]:
        """Returns the model requests of OpenClaw, including the notices of ended sessions."""
        return [passage for passage in self.relay.passages if passage.is_chat]

    def _engine_command(self) -> list[str]:
        program = ["-m", "claw_lab.e2e.scripted_engine"]
        return [*program, "--model-path", str(MODEL), "--port", str(self.engine_port)]

    def _gateway_command(self) -> list[str]:
        return ["-m", "openclaw.server", "--model-path", str(MODEL), "--port", str(self.port), "--engine-url",
                self.engine_url, "--enable-rl-intercept", "--rl-buffer-dir", str(self.folder / "buffer")]  # fmt: skip

    def _switch(self) -> None:
        """Sets a new weight version every second."""
        while not self._stop.wait(SWITCH_SECONDS):
            with contextlib.suppress(httpx.HTTPError):
                body = {"weight_version": str(self.versions + 1)}
                httpx.post(f"{self.engine_url}/switch_weights", json=body, timeout=5.0).raise_for_status()
                self.versions += 1
