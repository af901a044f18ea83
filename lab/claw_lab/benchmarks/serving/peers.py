"""Runs gateways of other projects with the engine that samples nothing, each in its own environment.

agent-lightning keeps requests in memory and streams nothing; LiteLLM stores nothing. Both are asked through their own
OpenAI route. Their packages are not in the requirements: `build` creates an environment for each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

READY_S = 120.0
MODEL = "fake"
ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # requests no prices from another machine
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # no key, as the other gateways
}
ATTEMPT = "/proxy/rollout/benchmark/attempt/0/mode/train/openai/v1/chat/completions"


@dataclass(frozen=True)
class Peer:
    """How to install, start and ask one gateway.

    command: (python, folder, port, engine url) -> words. prepare: configures the running server (url, engine url).
    python: versions that it runs on, best first.
    """

    requirement: str
    python: tuple[str, ...]
    command: Callable[[str, Path, int, str], list[str]]
    health: str
    path: str
    prepare: Callable[[str, str], None] = lambda url, engine_url: None


@dataclass(frozen=True)
class Running:
    """A running gateway: its process and the URL of its chat route."""

    pid: int
    url: str


def _agent_lightning(python: str, folder: Path, port: int, engine_url: str) -> list[str]:
    words = [f"host=127.0.0.1 port={port} default_proxy.model_name={MODEL}", f"hydra.run.dir={folder}"]
    return [python, "-m", "agentlightning.server", *" ".join(words).split(), "hydra.output_subdir=null"]


def _register_at_agent_lightning(url: str, engine_url: str) -> None:
    models = [{"model": MODEL, "endpoint": f"{engine_url}/v1"}]
    rollouts = [{"input": {}, "rollout_id": "benchmark"}]
    for path, body in (("models", models), ("rollouts", rollouts)):
        httpx.post(f"{url}/api/{path}", json=body, trust_env=False).raise_for_status()


def _litellm(python: str, folder: Path, port: int, engine_url: str) -> list[str]:
    config = folder / "litellm.yaml"
    config.write_text(
        f"model_list:\n  - model_name: {MODEL}\n    litellm_params:\n"
        f"      model: openai/{MODEL}\n      api_base: {engine_url}/v1\n      api_key: none\n"
    )
    command = str(Path(python).with_name("litellm"))
    return [
        command,
        "--config",
        str(config),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
    ]


PEERS = {
    "agent_lightning": Peer(
        requirement="agentlightning==1.0.2",
        python=("python3.12", "python3.13"),
        command=_agent_lightning,
        health="/healthz",
        path=ATTEMPT,
        prepare=_register_at_agent_lightning,
    ),
    "litellm": Peer(
        requirement="litellm[proxy]==1.106.0",
        python=("python3.11", "python3.12"),
        command=_litellm,
        health="/health/liveliness",
        path="/v1/chat/completions",
    ),
}


def build(folder: Path) -> dict[str, str]:
    """Creates environments of all gateways in `folder` and keeps them; returns name -> Python. Raises SystemExit if a
    Python is missing, CalledProcessError if pip fails."""
    pythons = {}
    for name, peer in PEERS.items():
        python = folder / name / "bin" / "python"
        if not python.exists():
            interpreter = next(filter(None, map(_which, peer.python)), None)
            if interpreter is None:
                raise SystemExit(f"{peer.requirement} needs one of {', '.join(peer.python)} on the PATH")
            subprocess.run([interpreter, "-m", "venv", str(folder / name)], check=True)
            subprocess.run(
                [str(python), "-m", "pip", "install", "-q", peer.requirement], check=True, stdout=sys.stderr
            )
        pythons[name] = str(python)
    return pythons


def _which(name: str) -> str | None:
    """Returns a Python of that name that starts (a version manager's shim may not)."""
    path = shutil.which(name)
    works = path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0
    return path if works else None


@contextmanager
def running_peer(name: str, python: str, folder: Path, port: int, engine_url: str) -> Iterator[Running]:
    """Starts a gateway and yields it when it is ready. Raises RuntimeError with the end of its log if it does not
    start."""
    peer, url = PEERS[name], f"http://127.0.0.1:{port}"
    folder.mkdir()
    command = peer.command(python, folder, port, engine_url)
    env = {**os.environ, **ENVIRONMENT}
    env.pop("PYTHONPATH", None)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        _wait_for(f"{url}{peer.health}", process, folder / "log")
        peer.prepare(url, engine_url)
        yield Running(process.pid, f"{url}{peer.path}")
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url, timeout=2.0, trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"{url} did not answer:\n{log.read_text(errors='replace')[-2000:]}")
