"""Every flag and environment variable of the gateway: type, unit, default and a sentence, declared once.

Flags win over variables, variables over defaults. `python -m openclaw.settings --markdown` prints the table
for the documentation. No other place of the runtime reads the environment.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn

from openclaw.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def setting(
    kind: type,
    default: Any,
    help: str,
    env: Sequence[str] = (),
    unit: str = "",
    choices: Sequence[str] = (),
    flag: bool = True,
) -> Any:
    """A field of Settings. `kind` bool makes a switch, tuple a repeatable flag; `flag` False: variables
    only."""
    about = {
        "kind": kind,
        "help": help,
        "env": tuple(env),
        "unit": unit,
        "choices": tuple(choices),
        "flag": flag,
    }
    return field(default=default, metadata=about)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The gateway's configuration. Raises ConfigError for values that contradict one another."""

    model_path: str | None = setting(
        str, None, "Hugging Face folder of the model: tokenizer and config here, weights for the engine.",
        ("MODEL_PATH", "BASE_MODEL_PATH"), "path",
    )  # fmt: skip
    host: str = setting(str, "127.0.0.1", "Address to listen on.", ("HOST", "OPENCLAW_HOST"))
    port: int = setting(int, 30000, "Port to listen on.", ("PORT", "OPENCLAW_PORT"))
    backend: str | None = setting(
        str, None, "Engine to launch; embedded when no --engine-url is given.", choices=("embedded",)
    )
    engine_url: tuple[str, ...] = setting(
        tuple, (), "Use this running engine instead of launching one; repeatable."
    )
    enable_rl_intercept: bool = setting(bool, False, "Record every turn in the rollout buffer, to train on.")
    rl_buffer_dir: str | None = setting(
        str, None, "Folder of the rollout buffer (a SQLite file in it).", ("RL_BUFFER_DIR",), "path"
    )
    rl_buffer_url: str | None = setting(
        str, None, "SQLAlchemy URL of the rollout buffer, instead of a folder.", ("RL_BUFFER_URL",), "URL"
    )
    run_dir: str | None = setting(
        str, None, "Folder of the run, read for /admin/processes.", ("RUN_DIR",), "path"
    )
    served_model_name: str | None = setting(
        str, None, "Name of the model in the API; default: the folder's name.", ("SERVED_MODEL_NAME",)
    )
    policy_id: str = setting(
        str, "policy", "Name of the trained policy, stored with every turn.", ("POLICY_ID",)
    )
    temperature: float | None = setting(
        float, None, "Sampling temperature where a request names none; default: the model's, else 0.6.",
        ("DEFAULT_TEMPERATURE",),
    )  # fmt: skip
    max_tokens_default: int | None = setting(
        int, None, "Longest answer where a request names none; default: what the context has left.",
        ("MAX_TOKENS_DEFAULT",), "tokens",
    )  # fmt: skip
    context_length: int | None = setting(
        int, None, "Longest prompt and answer together; default: the model's.", ("CONTEXT_LENGTH",), "tokens"
    )
    default_turn_type: str = setting(
        str, "main", "Type of a turn whose request names none: main is trained, side is not.",
        ("DEFAULT_TURN_TYPE",), choices=("main", "side"),
    )  # fmt: skip
    session_ttl: float = setting(
        float, 900.0, "How far back a conversation is found again when its client names no session.",
        ("SESSION_TTL",), "seconds",
    )  # fmt: skip
    request_timeout: float = setting(
        float,
        600.0,
        "Longest time of one request, waiting for engines included.",
        ("REQUEST_TIMEOUT",),
        "seconds",
    )
    durable: bool = setting(bool, False, "Survive power loss too: fsync every turn.", ("DURABLE",))
    allow_no_key: bool = setting(
        bool, False, "Listen beyond this machine although no key is set.", ("ALLOW_NO_KEY",)
    )
    log_level: str = setting(
        str,
        "info",
        "How much is logged to stderr.",
        ("LOG_LEVEL",),
        choices=("debug", "info", "warning", "error"),
    )
    max_body_bytes: int = setting(
        int, 8 << 20, "Longest request body; a longer one is refused (413).", ("MAX_BODY_BYTES",), "bytes"
    )
    max_messages: int = setting(int, 10_000, "Most messages in one request.", ("MAX_MESSAGES",))
    rate_limit: float = setting(
        float, 0.0, "Requests a minute for each key, or each address where no key is asked; 0: no limit.",
        ("RATE_LIMIT",),
    )  # fmt: skip
    client_timeout: float = setting(
        float, 60.0, "How long a client may take to send its body, or to read a full buffer of its answer.",
        ("CLIENT_TIMEOUT",), "seconds",
    )  # fmt: skip
    api_key: str | None = setting(
        str, None, "Key that clients must send (Authorization: Bearer KEY); none: no key is asked.",
        ("SGLANG_API_KEY", "OPENCLAW_API_KEY"), flag=False,
    )  # fmt: skip
    api_keys: str | None = setting(
        str, None, "More client keys, with names: ada=KEY,bob=KEY. The name is the person of a turn whose request "
        "names none; what a named key says is never mixed with what another person said.",
        ("OPENCLAW_API_KEYS",), flag=False,
    )  # fmt: skip
    admin_key: str | None = setting(
        str,
        None,
        "Key for /admin; without it only this machine may use /admin.",
        ("OPENCLAW_ADMIN_KEY",),
        flag=False,
    )

    def __post_init__(self) -> None:
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
        for name in _MORE_THAN_ZERO:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"--{name.replace('_', '-')} is {value}; it must be more than 0")
        if self.rate_limit < 0:
            raise ConfigError(f"--rate-limit is {self.rate_limit}; it must be 0 or more")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port is {self.port}; it must be from 0 to 65535")
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise ConfigError(f"--temperature is {self.temperature}; it must be from 0 to 2")

    def _check_keys(self) -> None:
        """What is wrong with a key is said without the key."""
        names = [name for name, _ in self.client_keys]
        if len(set(names)) != len(names):
            raise ConfigError("OPENCLAW_API_KEYS: a name is there twice; write NAME=KEY,NAME=KEY")
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


_MORE_THAN_ZERO = (
    "request_timeout", "session_ttl", "context_length", "max_tokens_default", "max_body_bytes", "max_messages",
    "client_timeout",
)  # fmt: skip


def load_settings(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Raises ConfigError for an unknown flag, a value of the wrong type, or a contradiction."""
    environ = os.environ if environ is None else environ
    given = vars(_parser().parse_args(sys.argv[1:] if argv is None else argv))
    values = {item.name: _value(item, given.get(item.name), environ) for item in fields(Settings)}
    return Settings(**values)


def markdown() -> str:
    """The settings as a table."""
    lines = ["| variable | flag | type | default | meaning |", "|---|---|---|---|---|"]
    for item in fields(Settings):
        about = item.metadata
        names = ", ".join(f"`{name}`" for name in about["env"]) or "—"
        flag = f"`{_flag(item)}`" if about["flag"] else "—"
        kind = "list" if about["kind"] is tuple else about["kind"].__name__
        unit = f", {about['unit']}" if about["unit"] else ""
        default = "—" if item.default in (None, ()) else f"`{item.default}`"
        lines.append(f"| {names} | {flag} | {kind}{unit} | {default} | {about['help']} |")
    return "\n".join(lines)


def add_flags(parser: argparse._ActionsContainer, names: Sequence[str]) -> None:
    """Adds the flags of these settings to any parser; what the command line does not name stays None."""
    for item in fields(Settings):
        about = item.metadata
        if item.name not in names or not about["flag"]:
            continue
        help = " ".join(
            filter(None, [about["help"], about["unit"] and f"({about['unit']})", _env_help(about["env"])])
        )
        if about["kind"] is bool:
            parser.add_argument(_flag(item), action="store_const", const=True, default=None, help=help)
        elif about["kind"] is tuple:
            parser.add_argument(_flag(item), action="append", default=None, help=help, metavar="URL")
        else:
            parser.add_argument(
                _flag(item), type=about["kind"], default=None, choices=about["choices"] or None, help=help
            )


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """The command-line words that give these settings; None and False are left out."""
    words: list[str] = []
    for item in fields(Settings):
        value = values.get(item.name)
        if value is None or value is False:
            continue
        if value is True:
            words.append(_flag(item))
        else:
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [_flag(item), str(one)]
    return words


class _Parser(argparse.ArgumentParser):
    """Errors in one line, with a suggestion for a misspelt flag."""

    def error(self, message: str) -> NoReturn:
        word = next((word for word in message.split() if word.startswith("--")), "")
        known = [option for action in self._actions for option in action.option_strings]
        close = difflib.get_close_matches(word.split("=")[0], known, 1)
        raise ConfigError(message + (f"; did you mean {close[0]}?" if close else "; see --help"))


def _parser() -> _Parser:
    parser = _Parser(
        prog="python -m openclaw.server",
        description="Serves a model over the OpenAI API and records every turn.",
        allow_abbrev=False,
    )
    add_flags(parser, [item.name for item in fields(Settings)])
    return parser


def _value(item: Field[Any], given: Any, environ: Mapping[str, str]) -> Any:
    if given is not None:
        return tuple(given) if item.metadata["kind"] is tuple else given
    name = next((name for name in item.metadata["env"] if environ.get(name, "") != ""), None)
    if name is not None:
        return _from_variable(item, name, environ[name])
    return item.default


def _from_variable(item: Field[Any], name: str, text: str) -> Any:
    kind, choices = item.metadata["kind"], item.metadata["choices"]
    if kind is bool:
        if text.lower() not in ("0", "1", "true", "false", "yes", "no", "on", "off"):
            raise ConfigError(f"{name} is {text!r}; it must be 1 or 0")
        return text.lower() in ("1", "true", "yes", "on")
    if choices and text not in choices:
        raise ConfigError(f"{name} is {text!r}; it must be one of {', '.join(choices)}")
    try:
        return kind(text)
    except ValueError as error:
        raise ConfigError(f"{name} is {text!r}; it must be of type {kind.__name__}") from error


def _flag(item: Field[Any]) -> str:
    return "--" + item.name.replace("_", "-")


def _env_help(names: Sequence[str]) -> str:
    return f"[env {', '.join(names)}]" if names else ""


if __name__ == "__main__":
    if sys.argv[1:] != ["--markdown"]:
        sys.exit("usage: python -m openclaw.settings --markdown")
    print(markdown())
