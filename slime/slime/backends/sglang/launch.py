"""`python -m slime.backends.launch --backend sglang --model-path FOLDER --port N [--sglang-... VALUE]`.

`--sglang-FLAG` is SGLang's `--FLAG`, checked by the installed SGLang itself. Flags that both have
(`--context-length`, `--max-running-requests`, ...) may be written either way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from slime.backends.child_process import ChildEngine, EngineGone, answers
from slime.backends.sglang import child
from slime.backends.sglang.capabilities import MEASURED_VERSION, check_capabilities
from slime.errors import ConfigError, EngineError
from slime.servers import bind_error

PREFIX = "--sglang-"
OURS = {
    "model-path": "it is the --model-path of the launcher",
    "model": "it is the --model-path of the launcher",
    "host": "it is the --host of the launcher",
    "port": "it is the --port of the launcher",
    "weight-version": "weight versions are numbered by the trainer",
    "api-key": "gateway and trainer reach engines on this machine without a key",
    "admin-api-key": "gateway and trainer reach engines on this machine without a key",
    "disaggregation-mode": "prefill and decode in different engines need a router, and engines are reached directly; "
    "use more engines, or more GPUs for each (--rollout-num-gpus-per-engine)",
    "skip-tokenizer-init": "answers without text cannot be stopped by stop strings",
    "config": "give its content as flags, which are checked",
}
"""Flags of SGLang that the launcher gives itself, or that would break what talks to it."""
COMMON = (
    "context-length",
    "max-running-requests",
    "chunked-prefill-size",
    "max-total-tokens",
    "device",
    "dtype",
    "log-level",
)
CHECK_TIMEOUT = 300.0  # seconds; importing SGLang for the first time is slow


@dataclass(frozen=True)
class Order:
    """One SGLang to start: whose Python, where, with which words of its own."""

    python: str
    model_path: str
    host: str
    port: int
    weights_file: str | None
    threads: int | None
    words: list[str]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


def parse(argv: list[str]) -> Order:
    """The launcher's flags; SystemExit after an unknown one. Raises ConfigError for one that is ours to give."""
    parser = argparse.ArgumentParser(
        prog="python -m slime.backends.launch --backend sglang", allow_abbrev=False
    )
    parser.add_argument("--model-path", required=True, help="Hugging Face model folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30010)
    parser.add_argument(
        "--weights-file", metavar="JSON", help="names the live weights; read at start if it exists"
    )
    parser.add_argument("--threads", type=int, help="CPU threads (default: SGLang's own)")
    parser.add_argument("--engine-python", default=sys.executable, help="the Python that has SGLang")
    for name in COMMON:
        parser.add_argument("--" + name, help="as in SGLang")
    args, rest = parser.parse_known_args(argv)
    words = translate(rest)
    for name in COMMON:
        value = getattr(args, name.replace("-", "_"))
        if value is not None:
            words += ["--" + name, value]
    return Order(
        args.engine_python, args.model_path, args.host, args.port, args.weights_file, args.threads, words
    )


def translate(words: list[str]) -> list[str]:
    """`--sglang-tp-size 2` -> `--tp-size 2`. Raises ConfigError for other flags and for ours."""
    found: list[str] = []
    for word in words:
        name = word.split("=", 1)[0].replace("_", "-")
        if word.startswith("--") and not name.startswith(PREFIX):
            raise ConfigError(
                f"unknown flag {name}; a flag of SGLang is written {PREFIX}{name.removeprefix('--')}"
            )
        bare = name.removeprefix(PREFIX)
        if word.startswith("--") and bare in OURS:
            raise ConfigError(f"{PREFIX}{bare} is not taken: {OURS[bare]}")
        found.append("--" + word[len(PREFIX) :] if word.startswith("--") else word)
    return found


def check(python: str, words: list[str]) -> str:
    """Lets the installed SGLang check flags without starting; returns its version.

    Raises:
        ConfigError: there is no SGLang in that Python, or it refuses a flag; in its words.
    """
    command = [python, child.__file__, "--check", "--model-path", "unused", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"the Python of SGLang, {python}, cannot be run: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ConfigError(last.removeprefix("engine: "))
    return str(json.loads(done.stdout.strip().splitlines()[-1])["version"])


def live_weights(order: Order) -> tuple[int, str]:
    """Version and folder to load at start. Raises ConfigError for a weights file that names none."""
    if order.weights_file is None or not Path(order.weights_file).is_file():
        return 0, order.model_path
    file = Path(order.weights_file)
    try:
        named = json.loads(file.read_text(encoding="utf-8"))
        return int(named["version"]), str(file.parent / named["path"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is not a weights file (version, path, checksum): {error!r}") from error


def serve(order: Order) -> int:
    """Starts SGLang, prints the ready line, waits for its end; returns an exit status.

    Raises:
        ConfigError: nothing to serve.
        EngineError: it ended, or lacks what we need.
    """
    version, folder = live_weights(order)
    if not (Path(folder) / "config.json").is_file():
        raise ConfigError(f"{folder} holds no config.json; give the folder of a Hugging Face model")
    error = bind_error(order.host, order.port)
    if error is not None:
        raise ConfigError(f"cannot listen on {order.host}:{order.port}: {error.strerror or error}")
    command = [order.python, child.__file__, "--model-path", folder, "--tokenizer-path", order.model_path]
    command += [
        "--host",
        order.host,
        "--port",
        str(order.port),
        "--weight-version",
        str(version),
        *order.words,
    ]
    threads = {} if order.threads is None else {"OMP_NUM_THREADS": str(order.threads)}
    with ChildEngine(command, order.url, {**os.environ, **threads}) as engine:
        engine.wait_until(lambda: answers(order.url))
        found = _version_of(order.url)
        if found != MEASURED_VERSION:
            print(f"engine: this is SGLang {found}, not the measured {MEASURED_VERSION}", file=sys.stderr)
            check_capabilities(order.url, found)
        engine.announce(order.model_path, version, backend="sglang", engine_version=found)
        return engine.wait()


def _version_of(url: str) -> str:
    answer = httpx.get(url + "/server_info", timeout=60.0, trust_env=False)
    return str(answer.json().get("version")) if answer.status_code == 200 else "of unknown version"


def launch(argv: list[str]) -> int:
    """What `slime.backends.launch` calls; returns an exit status, 2 for what was refused."""
    try:
        return serve(parse(argv))
    except EngineGone as error:
        print(f"engine: {error}", file=sys.stderr)
        return error.status if error.status > 0 else 1
    except (ConfigError, EngineError) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
