"""A third-party engine in its own Python: the launcher's flags, its own flags, and the first weights.

That Python runs a small program of this project (`child`), which lets the engine check its flags (`--check`)
or starts it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from claw_base.ports import bind_error
from slime.engines.child import EngineGone
from slime.engines.programs import child_command
from slime.engines.weights_file import FirstWeights, first_weights
from slime.errors import ConfigError, EngineError

CHECK_TIMEOUT = 300.0  # seconds; importing an engine for the first time is slow
NO_KEY = "gateway and trainer connect to engines on this machine without a key"


@dataclass(frozen=True)
class LaunchRequest:
    """One engine to start: its Python, address, and its own arguments.

    Attributes:
        device: cpu or cuda if the launcher checks it; otherwise, it is among the arguments.
        probe_limit: --weight-probe-limit, for an engine that verifies its weights itself.
    """

    python: str
    model_path: str
    host: str
    port: int
    weights_file: str | None
    threads: int | None
    words: list[str]
    device: str | None = None
    probe_limit: float | None = None

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@dataclass(frozen=True)
class ThirdPartyEngine:
    """Describes a third-party engine.

    Attributes:
        name: its project's spelling.
        key: `--backend KEY`, and `--KEY-FLAG` for its own `--FLAG`.
        child: path of the program that its Python runs.
        model_flag: its flag for the model's folder.
        ours: its flags that are reserved for the launcher or not supported, with the reason.
        common: its flags by the launcher's flags of the same meaning.
    """

    name: str
    key: str
    child: str
    model_flag: str
    ours: Mapping[str, str]
    common: Mapping[str, str]

    @property
    def prefix(self) -> str:
        return f"--{self.key}-"

    def parse(self, argv: list[str]) -> LaunchRequest:
        """Parses the launcher's flags. Exits after an unknown one.

        Raises:
            ConfigError: a flag is reserved for the launcher.
        """
        parser = argparse.ArgumentParser(
            prog=f"python -m slime.engines.launch --backend {self.key}", allow_abbrev=False
        )
        parser.add_argument("--model-path", required=True, help="Hugging Face model folder")
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=30010)
        parser.add_argument(
            "--weights-file",
            metavar="JSON",
            help="file with the live weights; read at start if it exists",
        )
        numbers: tuple[tuple[str, type, str], ...] = (
            ("--threads", int, f"CPU threads (default: {self.name}'s own)"),
            ("--probe-limit", float, "--weight-probe-limit of the run"),
        )
        for name, kind, text in numbers:
            parser.add_argument(name, type=kind, help=text)
        parser.add_argument(
            "--engine-python", default=sys.executable, help=f"Python in which {self.name} is installed"
        )
        if "device" not in self.common:
            parser.add_argument(
                "--device", choices=["cpu", "cuda"], help="rejected if the engine runs on another device"
            )
        for name, own in self.common.items():
            parser.add_argument("--" + name, help=f"{self.name}'s --{own}")
        args, rest = parser.parse_known_args(argv)
        words = self.translate(rest)
        for name, own in self.common.items():
            value = vars(args)[name.replace("-", "_")]
            if value is not None:
                words += ["--" + own, value]
        device = None if "device" in self.common else args.device
        return LaunchRequest(
            args.engine_python,
            args.model_path,
            args.host,
            args.port,
            args.weights_file,
            args.threads,
            words,
            device,
            args.probe_limit,
        )

    def translate(self, words: list[str]) -> list[str]:
        """Translates `--sglang-tp-size 2` to `--tp-size 2`. Raises ConfigError for unknown and reserved
        flags."""
        translated: list[str] = []
        for word in words:
            name = word.split("=", 1)[0].replace("_", "-")
            if word.startswith("--") and not name.startswith(self.prefix):
                raise ConfigError(
                    f"unknown flag {name}; flags of {self.name} have the prefix {self.prefix}: "
                    f"{self.prefix}{name.removeprefix('--')}"
                )
            bare = name.removeprefix(self.prefix)
            if word.startswith("--") and bare in self.ours:
                raise ConfigError(f"{self.prefix}{bare} is not supported: {self.ours[bare]}")
            translated.append("--" + word[len(self.prefix) :] if word.startswith("--") else word)
        return translated

    def check(self, python: str, words: list[str]) -> str:
        """Lets the installed engine check its flags without starting; returns its version.

        Raises:
            ConfigError: it is not installed in that Python, or rejects a flag.
        """
        command = [*child_command(python, self.child), "--check", self.model_flag, "unused", *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"the Python of {self.name}, {python}, cannot be run: {error}") from error
        if done.returncode != 0:
            last = (
                done.stderr.strip().splitlines()
                or [f"{self.name} exited with status {done.returncode}, without a message"]
            )[-1]
            raise ConfigError(last.removeprefix("engine: "))
        return str(json.loads(done.stdout.strip().splitlines()[-1])["version"])


def servable_weights(request: LaunchRequest) -> FirstWeights:
    """Returns the weights to load at the start.

    Raises:
        ConfigError: the weights file has no weights, the folder has no model, or the port is in use.
    """
    first = first_weights(request.model_path, request.weights_file)
    if not (Path(first.path) / "config.json").is_file():
        raise ConfigError(f"{first.path} contains no config.json; give the folder of a Hugging Face model")
    taken = bind_error(request.host, request.port)
    if taken is not None:
        raise ConfigError(f"cannot listen on {request.host}:{request.port}: {taken.strerror or taken}")
    return first


def run(serve: Callable[[], int]) -> int:
    """Runs a launcher and returns its exit status; after an error, prints one line on stderr and returns 2."""
    try:
        return serve()
    except EngineGone as error:
        print(f"engine: {error}", file=sys.stderr)
        return error.status if error.status > 0 else 1
    except (ConfigError, EngineError) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
