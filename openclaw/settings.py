"""Every flag and environment variable of the gateway: type, unit, default and a sentence, declared once.

Flags win over variables, variables over defaults. `python -m openclaw.settings --markdown` prints the table
for the documentation. No other place of the runtime reads the environment.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from openclaw.common import declare
from openclaw.common.declare import option
from openclaw.common.other_words import hint
from openclaw.common.version import add_version
from openclaw.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The gateway's configuration. Raises ConfigError for values that contradict one another."""

    model_path: str | None = option(
        str, None, "Hugging Face folder of the model: tokenizer and config here, weights for the engine.",
        ("MODEL_PATH", "BASE_MODEL_PATH"), "path",
    )  # fmt: skip
    host: str = option(str, "127.0.0.1", "Address to listen on.", ("HOST", "OPENCLAW_HOST"))
    port: int = option(int, 30000, "Port to listen on.", ("PORT", "OPENCLAW_PORT"), least=0, most=65535)
    backend: str | None = option(
        str, None, "Engine to launch; embedded when no --engine-url is given.", choices=("embedded",)
    )
    engine_url: tuple[str, ...] = option(
        tuple, (), "Use this running engine instead of launching one; repeatable."
    )
    enable_rl_intercept: bool = option(bool, False, "Record every turn in the rollout buffer, to train on.")
    rl_buffer_dir: str | None = option(
        str, None, "Folder of the rollout buffer (a SQLite file in it).", ("RL_BUFFER_DIR",), "path"
    )
    rl_buffer_url: str | None = option(
        str, None, "SQLAlchemy URL of the rollout buffer, instead of a folder.", ("RL_BUFFER_URL",), "URL"
    )
    run_dir: str | None = option(
        str, None, "Folder of the run, read for /admin/processes.", ("RUN_DIR",), "path"
    )
    served_model_name: str | None = option(
        str, None, "Name of the model in the API; default: the folder's name.", ("SERVED_MODEL_NAME",)
    )
    policy_id: str = option(
        str, "policy", "Name of the trained policy, stored with every turn.", ("POLICY_ID",)
    )
    temperature: float | None = option(
        float, None, "Sampling temperature where a request names none; default: the model's, else 0.6.",
        ("DEFAULT_TEMPERATURE",), least=0, most=2,
    )  # fmt: skip
    max_tokens_default: int | None = option(
        int, None, "Longest answer where a request names none; default: what the context has left.",
        ("MAX_TOKENS_DEFAULT",), "tokens", least=1,
    )  # fmt: skip
    context_length: int | None = option(
        int,
        None,
        "Longest prompt and answer together; default: the model's.",
        ("CONTEXT_LENGTH",),
        "tokens",
        least=1,
    )
    default_turn_type: str = option(
        str, "main", "Type of a turn whose request names none: main is trained, side is not.",
        ("DEFAULT_TURN_TYPE",), choices=("main", "side"),
    )  # fmt: skip
    memory: bool = option(
        bool,
        False,
        "Put what a person asked for in a complaint into their next prompts, until the weights hold it.",
    )
    session_ttl: float = option(
        float, 900.0, "How far back a conversation is found again when its client names no session.",
        ("SESSION_TTL",), "seconds", least=0.001,
    )  # fmt: skip
    request_timeout: float = option(
        float,
        600.0,
        "Longest time of one request, waiting for engines included.",
        ("REQUEST_TIMEOUT",),
        "seconds",
        least=0.001,
    )
    durable: bool = option(bool, False, "Survive power loss too: fsync every turn.", ("DURABLE",))
    allow_no_key: bool = option(
        bool, False, "Listen beyond this machine although no key is set.", ("ALLOW_NO_KEY",)
    )
    log_level: str = option(
        str,
        "info",
        "How much is logged to stderr.",
        ("LOG_LEVEL",),
        choices=("debug", "info", "warning", "error"),
    )
    max_body_bytes: int = option(
        int,
        8 << 20,
        "Longest request body; a longer one is refused (413).",
        ("MAX_BODY_BYTES",),
        "bytes",
        least=1,
    )
    max_messages: int = option(int, 10_000, "Most messages in one request.", ("MAX_MESSAGES",), least=1)
    rate_limit: float = option(
        float, 0.0, "Requests a minute for each key, or each address where no key is asked; 0: no limit.",
        ("RATE_LIMIT",), least=0,
    )  # fmt: skip
    max_running: int = option(
        int, 512, "Answers sampled at a time; main turns beyond it wait, side turns already beyond half of it.",
        ("MAX_RUNNING",), least=1,
    )  # fmt: skip
    max_open_requests: int = option(
        int, 2048, "Requests that one key, or one address where no key is asked, may have open; 0: no limit.",
        ("MAX_OPEN_REQUESTS",), least=0,
    )  # fmt: skip
    max_open_bytes: int = option(
        int, 128 << 20, "Bytes of bodies that one key or address may have in open requests; 0: no limit.",
        ("MAX_OPEN_BYTES",), "bytes", least=0,
    )  # fmt: skip
    allowed_hosts: tuple[str, ...] = option(
        tuple, (), "Where no key is asked: a further host name under which clients may reach this server; repeatable. "
        "Addresses, localhost, names without a dot, .local, .internal, .lan and .home.arpa are.", ("ALLOWED_HOSTS",),
    )  # fmt: skip
    client_timeout: float = option(
        float, 60.0, "How long a client may take to send a head or a body, or to read a full buffer of its answer.",
        ("CLIENT_TIMEOUT",), "seconds", least=0.001,
    )  # fmt: skip
    standby: str = option(
        str, "auto", "Whether a second gateway (and engine, where this server launches it) waits to take over when the "
        "first dies; auto: where memory allows.", ("STANDBY",), choices=("auto", "on", "off"),
    )  # fmt: skip
    otel_endpoint: str | None = option(
        str, None, "OpenTelemetry collector that gets a span for each answer, over HTTP; none: no spans. Needs "
        "`pip install '.[otel]'`.", ("OTEL_EXPORTER_OTLP_ENDPOINT",), "URL", flag=False,
    )  # fmt: skip
    otel_content: str | None = option(
        str, None, "true (or SPAN_ONLY, SPAN_AND_EVENT): put what people and the model wrote into these spans.",
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",), flag=False,
    )  # fmt: skip
    listen_fds: int | None = option(
        int, None, "Set by systemd's socket activation: the first socket is used instead of HOST and PORT.",
        ("LISTEN_FDS",), flag=False,
    )  # fmt: skip
    listen_pid: int | None = option(
        int, None, "Set with it: the process that it is for.", ("LISTEN_PID",), flag=False
    )
    door_state: str | None = option(
        str, None, "Set by the server for itself when SIGHUP replaces it.", ("OPENCLAW_DOOR",), flag=False
    )
    api_key: str | None = option(
        str, None, "Key that clients must send (Authorization: Bearer KEY); none: no key is asked.",
        ("SGLANG_API_KEY", "OPENCLAW_API_KEY"), flag=False,
    )  # fmt: skip
    api_keys: str | None = option(
        str, None, "More client keys, with names: ada=KEY,bob=KEY. The name is the person of a turn whose request "
        "names none; what a named key says is never mixed with what another person said.",
        ("OPENCLAW_API_KEYS",), flag=False,
    )  # fmt: skip
    admin_key: str | None = option(
        str,
        None,
        "Key for /admin; without it only this machine may use /admin.",
        ("OPENCLAW_ADMIN_KEY",),
        flag=False,
    )

    def __post_init__(self) -> None:
        if self.backend not in (None, "embedded"):
            raise ConfigError(
                f"--backend {self.backend}: this server launches the embedded engine alone. Start another one by itself "
                "(SGLang: python -m slime.engines.launch --backend sglang --model-path FOLDER --port 30010) and name "
                "it: --engine-url http://127.0.0.1:30010"
            )
        declare.check(self)
        if not self.model_path:
            raise ConfigError("no model: give --model-path FOLDER or set MODEL_PATH")
        if self.engine_url and self.backend:
            raise ConfigError("--engine-url and --backend contradict: use a running engine, or launch one")
        if self.rl_buffer_dir and self.rl_buffer_url:
            raise ConfigError("--rl-buffer-dir and --rl-buffer-url contradict: give one of them")
        if self.enable_rl_intercept and not (self.rl_buffer_dir or self.rl_buffer_url):
            raise ConfigError(
                "--enable-rl-intercept needs --rl-buffer-dir or --rl-buffer-url to record turns in"
            )
        self._check_keys()
        if self.host not in LOOPBACK and not (self.client_keys or self.allow_no_key):
            raise ConfigError(
                f"listening on {self.host} without a key: set SGLANG_API_KEY, or ALLOW_NO_KEY=1"
            )

    def _check_keys(self) -> None:
        """Raises ConfigError; no message contains a key."""
        names = [name for name, _ in self.client_keys]
        if len(set(names)) != len(names):
            raise ConfigError("OPENCLAW_API_KEYS: a name is there twice; write NAME=KEY,NAME=KEY")
        if len({key for _, key in self.client_keys}) != len(names):
            raise ConfigError(
                "OPENCLAW_API_KEYS: two names have one key, so nobody could tell who is talking"
            )
        keys = {"OPENCLAW_ADMIN_KEY": self.admin_key} | {
            f"the key of {name!r} in OPENCLAW_API_KEYS" if name else "SGLANG_API_KEY": key
            for name, key in self.client_keys
        }
        for name, key in keys.items():
            if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
                raise ConfigError(
                    f"{name} is empty or has a blank, a line break or a character that is no ASCII in it"
                )

    @functools.cached_property
    def client_keys(self) -> tuple[tuple[str, str], ...]:
        """(name, key) of every client; the name of the common key is empty. Raises ConfigError."""
        found = [] if self.api_key is None else [("", self.api_key)]
        for entry in self.api_keys.split(",") if self.api_keys else []:
            name, equals, key = entry.partition("=")
            if not (equals and name.strip()):
                raise ConfigError("OPENCLAW_API_KEYS: write NAME=KEY,NAME=KEY; a key may have no comma")
            found.append((name.strip(), key))
        return tuple(found)

    @property
    def buffer(self) -> str | None:
        """Where turns are recorded; None when they are not."""
        return (self.rl_buffer_url or self.rl_buffer_dir) if self.enable_rl_intercept else None

    @property
    def model_folder(self) -> Path:
        return Path(self.model_path or "").expanduser()

    @property
    def model_name(self) -> str:
        return self.served_model_name or self.model_folder.resolve().name


def load_settings(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Raises ConfigError for an unknown flag, a value of the wrong type, or a contradiction."""
    given = vars(_parser().parse_args(sys.argv[1:] if argv is None else argv))
    return declare.load(Settings, given, environ)


def markdown() -> str:
    """The settings as a table."""
    return declare.markdown(Settings)


def add_buffer_flags(parser: argparse._ActionsContainer) -> None:
    """Adds --rl-buffer-dir and --rl-buffer-url for a program that opens the buffer and reads no environment."""
    declare.add_flags(parser, Settings, ("rl_buffer_dir", "rl_buffer_url"), variables=False)


def add_flags(parser: argparse._ActionsContainer, names: Sequence[str]) -> None:
    """Adds the flags of these settings to any parser; what the command line does not name stays None."""
    declare.add_flags(parser, Settings, names)


def as_flags(values: Mapping[str, object]) -> list[str]:
    """The command-line words that give these settings; None and False are left out."""
    return declare.as_flags(Settings, values)


class _Parser(argparse.ArgumentParser):
    """Errors in one line, with a suggestion for a misspelt flag."""

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        raise ConfigError(f"{message}; {hint(message, known)}")


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m openclaw.server",
        description="Serves a model over the OpenAI API and records every turn.",
        allow_abbrev=False,
    )
    declare.add_flags(parser, Settings)
    add_version(parser)
    return parser


if __name__ == "__main__":
    if sys.argv[1:] != ["--markdown"]:
        sys.exit("usage: python -m openclaw.settings --markdown")
    print(markdown())
