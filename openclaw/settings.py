"""Every flag and environment variable of the gateway: type, unit, default and a sentence, declared once.

Flags override variables, variables override defaults. `python -m openclaw.settings --markdown` prints the table for
the documentation. No other code of the runtime reads the environment.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from claw_base.settings import command_line
from claw_base.settings.declare import check, flag, flags_of
from claw_base.settings.documents import table
from openclaw.common.other_words import hint
from openclaw.common.version import add_version
from openclaw.errors import ConfigError

PER_KEY = "per-key"
"""Value of --train-adapters: each named client key has its own adapter."""
ADAPTER_NAME = r"[^\s:/?#=~,]{1,128}"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def plain_name(name: str) -> str:
    """Returns a name without differences in case and Unicode form."""
    return unicodedata.normalize("NFKC", name).casefold()


def is_adapter_name(name: str) -> bool:
    """Returns whether a trained adapter, and its folder, may have this name."""
    return re.fullmatch(ADAPTER_NAME, name) is not None and not name.startswith(".")


BUFFER_DIR = "Folder of the rollout buffer (a SQLite file in it)."
BUFFER_URL = "SQLAlchemy URL of the rollout buffer, instead of a folder."


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The gateway's configuration. Raises ConfigError for contradictory values."""

    model_path: str | None = flag(
        None,
        "Hugging Face folder of the model: tokenizer and config here, weights for the engine.",
        env=("MODEL_PATH", "BASE_MODEL_PATH"),
        unit="path",
    )
    host: str = flag("127.0.0.1", "Address to listen on.", env=("HOST", "OPENCLAW_HOST"))
    port: int = flag(30000, "Port to listen on.", env=("PORT", "OPENCLAW_PORT"), least=0, most=65535)
    backend: str | None = flag(
        None,
        "Engine to launch; embedded if no --engine-url is given.",
        choices=("embedded",),
        instead="this server launches the embedded engine alone. Start another one by itself (SGLang: python -m "
        "slime.engines.launch --backend sglang --model-path FOLDER --port 30010) and name it: --engine-url "
        "http://127.0.0.1:30010",
    )
    engine_url: tuple[str, ...] = flag(
        (), "Use this running engine instead of launching one; repeatable.", unit="URL"
    )
    enable_rl_intercept: bool = flag(False, "Record every turn in the rollout buffer, for training.")
    rl_buffer_dir: str | None = flag(None, BUFFER_DIR, env=("RL_BUFFER_DIR",), unit="path")
    rl_buffer_url: str | None = flag(None, BUFFER_URL, env=("RL_BUFFER_URL",), unit="URL")
    run_dir: str | None = flag(None, "Run folder, read by /admin/processes.", env=("RUN_DIR",), unit="path")
    served_model_name: str | None = flag(
        None, "Name of the model in the API; default: the folder's name.", env=("SERVED_MODEL_NAME",)
    )
    strict_model_name: bool = flag(
        False,
        "Reject requests that name another model (404); otherwise answer them and log one warning.",
        env=("STRICT_MODEL_NAME",),
    )
    adapter: tuple[str, ...] = flag(
        (),
        "Serve the LoRA adapter of a folder (PEFT format) as MODEL:NAME; repeatable.",
        env=("ADAPTERS",),
        unit="NAME=FOLDER",
    )
    max_loaded_adapters: int | None = flag(
        None,
        "Adapters in the launched engine's memory; others are loaded on request; default: 64.",
        env=("MAX_LOADED_ADAPTERS",),
        least=1,
    )
    train_adapters: str | None = flag(
        None,
        "Train adapters on a frozen base, each from its own conversations: per-key (one for each named client key), or "
        "names, separated by commas.",
        env=("TRAIN_ADAPTERS",),
        unit="per-key or NAMES",
    )
    policy_id: str = flag("policy", "Name of the trained policy, stored with every turn.", env=("POLICY_ID",))
    temperature: float | None = flag(
        None,
        "Default sampling temperature of requests; default: the model's, else 0.6.",
        env=("DEFAULT_TEMPERATURE",),
        least=0,
        most=2,
    )
    min_temperature: float = flag(
        0.0,
        "Minimum temperature, to which lower ones are raised; answers at 0 cannot be trained by scores.",
        env=("MIN_TEMPERATURE",),
        least=0,
        most=2,
    )
    max_tokens_default: int | None = flag(
        None,
        "Default limit of an answer; default: the rest of the context.",
        env=("MAX_TOKENS_DEFAULT",),
        unit="tokens",
        least=1,
    )
    context_length: int | None = flag(
        None,
        "Maximum tokens of prompt and answer together; default: the model's.",
        env=("CONTEXT_LENGTH",),
        unit="tokens",
        least=1,
    )
    default_turn_type: str = flag(
        "main",
        "Default type of a turn: main is trained, side is not.",
        env=("DEFAULT_TURN_TYPE",),
        choices=("main", "side"),
    )
    memory: bool = flag(
        False,
        "Add preferences from a person's complaints to their prompts, until the weights contain them.",
    )
    session_ttl: float = flag(
        900.0,
        "Idle time after which a conversation ends and its transcript is no longer matched.",
        env=("SESSION_TTL",),
        unit="seconds",
        least=0.001,
    )
    request_timeout: float = flag(
        600.0,
        "Longest time of one request, including the wait for engines.",
        env=("REQUEST_TIMEOUT",),
        unit="seconds",
        least=0.001,
    )
    durable: bool = flag(False, "Survive a power loss too: fsync every turn.", env=("DURABLE",))
    allow_no_key: bool = flag(
        False, "Listen on other interfaces than loopback even without a key.", env=("ALLOW_NO_KEY",)
    )
    log_level: str = flag(
        "info",
        "Lowest level logged to stderr.",
        env=("LOG_LEVEL",),
        choices=("debug", "info", "warning", "error"),
    )
    max_body_bytes: int = flag(
        8 << 20,
        "Longest request body; longer ones are rejected (413).",
        env=("MAX_BODY_BYTES",),
        unit="bytes",
        least=1,
    )
    max_messages: int = flag(10_000, "Maximum messages in one request.", env=("MAX_MESSAGES",), least=1)
    rate_limit: float = flag(
        0.0,
        "Requests per minute and key (address without keys); 0: no limit.",
        env=("RATE_LIMIT",),
        least=0,
    )
    max_running: int = flag(
        512,
        "Answers sampled concurrently; other main turns wait, side turns wait beyond half.",
        env=("MAX_RUNNING",),
        least=1,
    )
    max_open_requests: int = flag(
        2048,
        "Open requests per key (per address without keys); 0: no limit.",
        env=("MAX_OPEN_REQUESTS",),
        least=0,
    )
    max_open_bytes: int = flag(
        128 << 20,
        "Bytes of bodies in open requests, per key or address; 0: no limit.",
        env=("MAX_OPEN_BYTES",),
        unit="bytes",
        least=0,
    )
    allowed_hosts: tuple[str, ...] = flag(
        (),
        "Without keys: another host name of this server; repeatable. Always allowed: "
        "addresses, localhost, names without a dot, .local, .internal, .lan, .home.arpa.",
        env=("ALLOWED_HOSTS",),
    )
    cors_origin: tuple[str, ...] = flag(
        (),
        "Web site whose pages may use the API (not /admin), such as https://chat.example.com; repeatable.",
        env=("CORS_ORIGINS",),
    )
    client_timeout: float = flag(
        60.0,
        "Time limit for a client to send headers or a body, or to read.",
        env=("CLIENT_TIMEOUT",),
        unit="seconds",
        least=0.001,
    )
    trusted_proxies: str | None = flag(
        None,
        "Addresses of trusted proxies, separated by commas, whose X-Forwarded-For gives the "
        "client for limits; default: none.",
        env=("FORWARDED_ALLOW_IPS",),
        variable_only=True,
    )
    standby: str = flag(
        "auto",
        "Keep a spare gateway (and launched engine) for failures; auto: if memory allows.",
        env=("STANDBY",),
        choices=("auto", "on", "off"),
    )
    otel_endpoint: str | None = flag(
        None,
        "OpenTelemetry collector of a span per answer, over HTTP. Needs `pip install '.[otel]'`.",
        env=("OTEL_EXPORTER_OTLP_ENDPOINT",),
        unit="URL",
        variable_only=True,
    )
    otel_content: str | None = flag(
        None,
        "true (or SPAN_ONLY, SPAN_AND_EVENT): include messages of user and model in these spans.",
        env=("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",),
        variable_only=True,
    )
    listen_fds: int | None = flag(
        None,
        "Set by systemd's socket activation: the first socket is used instead of HOST and PORT.",
        env=("LISTEN_FDS",),
        variable_only=True,
    )
    listen_pid: int | None = flag(
        None,
        "Set by systemd's socket activation: id of the process that gets the sockets.",
        env=("LISTEN_PID",),
        variable_only=True,
    )
    inherited_state: str | None = flag(
        None,
        "Set by the server itself when SIGHUP replaces it.",
        env=("OPENCLAW_DOOR",),
        variable_only=True,
    )
    api_key: str | None = flag(
        None,
        "Key that clients must send (Authorization: Bearer KEY); without one, no key is required.",
        env=("SGLANG_API_KEY", "OPENCLAW_API_KEY"),
        variable_only=True,
    )
    api_keys: str | None = flag(
        None,
        "More client keys with names: ada=KEY,bob=KEY. The name is the turn's default person. Other "
        "keys cannot read or judge its turns.",
        env=("OPENCLAW_API_KEYS",),
        variable_only=True,
    )
    admin_key: str | None = flag(
        None,
        "Key for /admin and the page. Default: with client keys, one generated in RUN_DIR/admin.key; "
        "without, the server's own user needs none.",
        env=("OPENCLAW_ADMIN_KEY",),
        variable_only=True,
    )

    def __post_init__(self) -> None:
        check(self)
        if not self.model_path:
            raise ConfigError("no model: give --model-path FOLDER or set MODEL_PATH")
        if self.engine_url and self.backend:
            raise ConfigError("--engine-url and --backend contradict: use a running engine, or launch one")
        if self.engine_url and self.max_loaded_adapters is not None:
            raise ConfigError(
                "--max-loaded-adapters is for a launched engine: set it at the start of the engine of --engine-url"
            )
        if self.rl_buffer_dir and self.rl_buffer_url:
            raise ConfigError("--rl-buffer-dir and --rl-buffer-url contradict: give one of them")
        if self.enable_rl_intercept and not (self.rl_buffer_dir or self.rl_buffer_url):
            raise ConfigError(
                "--enable-rl-intercept needs --rl-buffer-dir or --rl-buffer-url to record turns in"
            )
        self._check_keys()
        self._check_adapters()
        for origin in self.cors_origin:
            if not re.fullmatch(r"https?://[^/\s*]+", origin):
                raise ConfigError(
                    f"--cors-origin {origin}: name one site, such as https://chat.example.com, without a path"
                )
        if self.host not in LOOPBACK and not (self.client_keys or self.allow_no_key):
            raise ConfigError(
                f"listening on {self.host} without a key: set SGLANG_API_KEY, or ALLOW_NO_KEY=1"
            )

    def _check_keys(self) -> None:
        """Raises ConfigError for invalid keys; no message contains a key."""
        names = [name for name, _ in self.client_keys]
        if len(set(names)) != len(names):
            raise ConfigError("OPENCLAW_API_KEYS: a name occurs twice; write NAME=KEY,NAME=KEY")
        if len({key for _, key in self.client_keys}) != len(names):
            raise ConfigError(
                "OPENCLAW_API_KEYS: two names have one key, so their requests cannot be distinguished"
            )
        keys = {"OPENCLAW_ADMIN_KEY": self.admin_key} | {
            f"the key of {name!r} in OPENCLAW_API_KEYS" if name else "SGLANG_API_KEY": key
            for name, key in self.client_keys
        }
        for name, key in keys.items():
            if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
                raise ConfigError(
                    f"{name} is empty, or contains a space, a line break or a character that is not printable ASCII"
                )

    def _check_adapters(self) -> None:
        """Raises ConfigError for invalid adapters."""
        for entry in self.adapter:
            name, _, folder = entry.partition("=")
            if not (re.fullmatch(ADAPTER_NAME, name) and folder):
                raise ConfigError(
                    f"--adapter {entry}: write NAME=FOLDER; a name has no blank and none of : / ? # = ~ ,"
                )
        if len(self.adapters) != len(self.adapter):
            raise ConfigError("--adapter: a name occurs twice; give each adapter its own")
        self._check_trained()
        if (self.adapter or self.train_adapters is not None) and "::" in self.policy_id:
            raise ConfigError(f"--policy-id {self.policy_id}: with --adapter it must not contain '::'")

    def _check_trained(self) -> None:
        """Raises ConfigError for --train-adapters."""
        if self.train_adapters is None:
            return
        if not self.enable_rl_intercept:
            raise ConfigError(
                "--train-adapters needs --enable-rl-intercept: nothing is learned from otherwise"
            )
        if not self.trained_adapters:
            raise ConfigError(
                "--train-adapters per-key: no client key has a name; set OPENCLAW_API_KEYS=NAME=KEY,NAME=KEY"
                if self.train_adapters.strip() == PER_KEY
                else "--train-adapters names no adapter: write per-key, or names separated by commas"
            )
        for name in self.trained_adapters:
            if not is_adapter_name(name):
                raise ConfigError(
                    f"--train-adapters {name}: a name has no blank, none of : / ? # = ~ , and does not start with a dot"
                )
            if (key := self._key_called_like(name)) is not None:
                raise ConfigError(f"--train-adapters {name}: write the name of the client key, {key}")
        if both := self.trained_adapters & self.adapters.keys():
            raise ConfigError(f"--train-adapters and --adapter both have {min(both)!r}: give them two names")

    def _key_called_like(self, name: str) -> str | None:
        """Returns a key whose name differs from this one only in case or Unicode form."""
        alike = (key for key in self.key_names if plain_name(key) == plain_name(name))
        return None if name in self.key_names else next(alike, None)

    @functools.cached_property
    def trained_adapters(self) -> frozenset[str]:
        """Returns the names of the adapters that this run trains."""
        if self.train_adapters is None:
            return frozenset()
        if self.train_adapters.strip() == PER_KEY:
            return self.key_names
        return frozenset(name.strip() for name in self.train_adapters.split(",") if name.strip())

    @functools.cached_property
    def own_adapters(self) -> frozenset[str]:
        """Returns the trained adapters that learn only from the client key of the same name."""
        return self.trained_adapters & self.key_names

    @functools.cached_property
    def adapters(self) -> dict[str, Path]:
        """Returns the folders of the adapters by name."""
        parts = [entry.partition("=") for entry in self.adapter]
        return {name: Path(folder).expanduser().resolve() for name, _, folder in parts}

    @functools.cached_property
    def client_keys(self) -> tuple[tuple[str, str], ...]:
        """Returns (name, key) of every client; the common key has an empty name. Raises ConfigError."""
        keys = [] if self.api_key is None else [("", self.api_key)]
        for entry in self.api_keys.split(",") if self.api_keys else []:
            name, equals, key = entry.partition("=")
            if not (equals and name.strip()):
                raise ConfigError("OPENCLAW_API_KEYS: write NAME=KEY,NAME=KEY; a key may have no comma")
            keys.append((name.strip(), key))
        return tuple(keys)

    @functools.cached_property
    def key_names(self) -> frozenset[str]:
        """Returns the names of client keys; the common key has none."""
        return frozenset(name for name, _ in self.client_keys if name)

    @property
    def buffer(self) -> str | None:
        """Returns the folder or URL in which turns are recorded; None if they are not."""
        return (self.rl_buffer_url or self.rl_buffer_dir) if self.enable_rl_intercept else None

    @property
    def model_folder(self) -> Path:
        return Path(self.model_path or "").expanduser()

    @property
    def model_name(self) -> str:
        return self.served_model_name or self.model_folder.resolve().name


def load_settings(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Loads the settings. Raises ConfigError for an unknown flag, a value of the wrong type, or a contradiction."""
    flags = vars(_parser().parse_args(sys.argv[1:] if argv is None else argv))
    return command_line.load(Settings, flags, environ)


def markdown() -> str:
    """Returns the settings as a table."""
    return "\n".join(table(flags_of(Settings)))


@dataclass(frozen=True, kw_only=True)
class BufferAddress:
    """The rollout buffer that a program opens; it is not read from the environment."""

    rl_buffer_dir: str | None = flag(None, BUFFER_DIR, unit="path", one_of="buffer")
    rl_buffer_url: str | None = flag(None, BUFFER_URL, unit="URL", one_of="buffer")

    @property
    def buffer(self) -> str:
        """Returns its folder or URL."""
        return self.rl_buffer_url or self.rl_buffer_dir or ""


def add_flags(parser: argparse._ActionsContainer, names: Sequence[str]) -> None:
    """Adds the flags of these settings to a parser; values missing on the command line are None."""
    command_line.add_flags(parser, Settings, names)


def as_flags(values: Mapping[str, object]) -> list[str]:
    """Returns command-line arguments for these settings, except None and False."""
    return command_line.as_flags(Settings, values)


class _Parser(command_line.Parser):
    """Reports errors in one line, with a suggestion for an unknown flag."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; {hint(message, self)}")


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m openclaw.server",
        description="Serves a model over the OpenAI API and records every turn.",
    )
    command_line.add_flags(parser, Settings)
    add_version(parser)
    return parser


if __name__ == "__main__":
    if sys.argv[1:] != ["--markdown"]:
        sys.exit("usage: python -m openclaw.settings --markdown")
    print(markdown())
