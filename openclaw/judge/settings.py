"""Every flag and environment variable of the judge: type, unit, default and a sentence, declared once.

Flags win over variables, variables over defaults. A setting's first flag is safe on a training driver's command
line, where other parts have flags too; the short forms are the judge's own. `python -m openclaw.judge.settings`
prints the table for the documentation.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from openclaw.errors import ConfigError

BACKEND_NAMES = ("rules", "engine", "openai")


def setting(
    kind: type, default: Any, help: str, env: Sequence[str], unit: str = "", also: Sequence[str] = (),
    choices: Sequence[str] = (), least: float | None = None, most: float | None = None, flag: bool = True,
) -> Any:  # fmt: skip
    """A field of JudgeSettings. `kind` tuple is a repeatable flag and a comma-separated variable; `also` are
    more flags for it; `least` and `most` bound a number; `flag` False: variable only."""
    return field(
        default=default,
        metadata={
            "kind": kind, "help": help, "env": tuple(env), "unit": unit, "also": tuple(also),
            "choices": tuple(choices), "least": least, "most": most, "flag": flag,
        },
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """The judge's configuration. Raises ConfigError for a number out of range or a backend that lacks its
    address."""

    judge_backend: str = setting(
        str, "rules", "Who judges: rules (no model), engine (our engines), openai (any such URL).",
        ("JUDGE_BACKEND",), also=("--backend",), choices=BACKEND_NAMES,
    )  # fmt: skip
    prm_m: int = setting(
        int, 1, "Votes a turn; the majority counts.", ("PRM_M", "MAJORITY_VOTE_N"),
        also=("--majority-vote-n", "--votes"), least=1,
    )  # fmt: skip
    majority_vote_threshold: float = setting(
        float, 0.0, "Share of the valid votes that the majority must reach, else the score is 0.",
        ("MAJORITY_VOTE_THRESHOLD",), also=("--vote-threshold",), least=0, most=1,
    )  # fmt: skip
    prm_temperature: float = setting(
        float, 0.6, "Sampling temperature of a judge model.", ("PRM_TEMPERATURE",), least=0, most=2
    )
    prm_max_new_tokens: int = setting(
        int, 4096, "Longest reply of a judge model.", ("PRM_MAX_NEW_TOKENS",), "tokens", least=1
    )
    prm_model_path: str | None = setting(
        str, None, "Folder of the judge model's tokenizer and chat template (backend engine).",
        ("PRM_MODEL_PATH", "JUDGE_MODEL_PATH"), "path",
    )  # fmt: skip
    judge_engine_url: tuple[str, ...] = setting(
        tuple, (), "Engine that runs the judge model (backend engine); repeatable.",
        ("JUDGE_ENGINE_URL",), "URL", also=("--engine-url",),
    )  # fmt: skip
    judge_url: str | None = setting(
        str, None, "Base URL of an OpenAI-compatible API, with /v1 where it has that (backend openai).",
        ("JUDGE_URL",), "URL",
    )  # fmt: skip
    judge_model: str | None = setting(
        str, None, "Name of the judge model at that API (backend openai).", ("JUDGE_MODEL",)
    )
    judge_api_key: str | None = setting(
        str, None, "Key of that API (backend openai).", ("JUDGE_API_KEY",), flag=False
    )
    judge_prompt_dir: str | None = setting(
        str, None, "Folder whose eval.md and hint.md replace the shipped prompts.",
        ("JUDGE_PROMPT_DIR",), "path", also=("--prompt-dir",),
    )  # fmt: skip
    judge_timeout: float = setting(
        float, 120.0, "Longest time for all votes of one turn, retries included.",
        ("JUDGE_TIMEOUT",), "seconds", also=("--timeout",), least=0.001,
    )  # fmt: skip
    judge_request_timeout: float = setting(
        float, 60.0, "Longest time of one request to a judge model.",
        ("JUDGE_REQUEST_TIMEOUT",), "seconds", also=("--request-timeout",), least=0.001,
    )  # fmt: skip
    judge_retries: int = setting(
        int,
        2,
        "How often one vote's request is sent again.",
        ("JUDGE_RETRIES",),
        also=("--retries",),
        least=0,
    )
    judge_retry_budget: float = setting(
        float, 0.2, "Retries that all requests together may cost, as a share of them (10 are always free).",
        ("JUDGE_RETRY_BUDGET",), also=("--retry-budget",), least=0,
    )  # fmt: skip
    judge_attempts: int = setting(
        int, 5, "Tries before a turn is dropped as judge_error.", ("JUDGE_ATTEMPTS",), also=("--attempts",), least=1
    )  # fmt: skip
    judge_concurrency: int = setting(
        int, 8, "Turns judged at a time by one worker.", ("JUDGE_CONCURRENCY",), also=("--concurrency",), least=1
    )  # fmt: skip
    judge_max_requests: int = setting(
        int, 32, "Requests to judge models that one worker has open at a time.",
        ("JUDGE_MAX_REQUESTS",), also=("--max-requests",), least=1,
    )  # fmt: skip
    judge_cache_size: int = setting(
        int, 1024, "Answered questions kept, so that the same question costs nothing; 0: none.",
        ("JUDGE_CACHE_SIZE",), "questions", also=("--cache-size",), least=0,
    )  # fmt: skip
    judge_metrics_interval: float = setting(
        float, 60.0, "How often the metrics are logged.",
        ("JUDGE_METRICS_INTERVAL",), "seconds", also=("--metrics-interval",), least=0.01,
    )  # fmt: skip
    judge_neutral_limit: float = setting(
        float, 0.8, "Share of neutral scores from which an alarm is logged.",
        ("JUDGE_NEUTRAL_LIMIT",), also=("--neutral-limit",), least=0, most=1,
    )  # fmt: skip
    judge_neutral_window: int = setting(
        int, 50, "Last judgements that the alarm looks at.",
        ("JUDGE_NEUTRAL_WINDOW",), "judgements", also=("--neutral-window",), least=1,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item, getattr(self, item.name))
        if self.judge_backend == "engine" and not (self.judge_engine_url and self.prm_model_path):
            raise ConfigError("the engine judge needs --judge-engine-url and --prm-model-path")
        if self.judge_backend == "openai" and not (self.judge_url and self.judge_model):
            raise ConfigError("the openai judge needs --judge-url and --judge-model")


def add_flags(parser: argparse._ActionsContainer, short: bool = False) -> None:
    """Adds the judge's flags to any parser, with the short forms too if asked; what the command line does
    not name stays None."""
    for item in fields(JudgeSettings):
        about = item.metadata
        if not about["flag"]:
            continue
        names = [_flag(item), *(name for name in about["also"] if short or _is_safe(name))]
        unit = f" ({about['unit']})" if about["unit"] else ""
        help = f"{about['help']}{unit} [env {', '.join(about['env'])}]"
        if about["kind"] is tuple:
            parser.add_argument(*names, dest=item.name, action="append", help=help, metavar="URL")
        else:
            metavar = "{" + ",".join(about["choices"]) + "}" if about["choices"] else None
            parser.add_argument(*names, dest=item.name, type=about["kind"], help=help, metavar=metavar)


def load_settings(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> JudgeSettings:
    """The settings of a parsed command line (see `add_flags`). Raises ConfigError."""
    environ = os.environ if environ is None else environ
    return JudgeSettings(**{item.name: _value(item, vars(args), environ) for item in fields(JudgeSettings)})


def as_flags(args: argparse.Namespace) -> list[str]:
    """The command-line words that pass on what a parsed command line names of these settings."""
    words: list[str] = []
    for item in fields(JudgeSettings):
        value = getattr(args, item.name, None) if item.metadata["flag"] else None
        for one in value if isinstance(value, list | tuple) else [value]:
            if one is not None:
                words += [_flag(item), str(one)]
    return words


def markdown() -> str:
    """The settings as a table."""
    lines = ["| variable | flag | type | default | meaning |", "|---|---|---|---|---|"]
    for item in fields(JudgeSettings):
        about = item.metadata
        names = ", ".join(f"`{name}`" for name in about["env"])
        flags = ", ".join(f"`{name}`" for name in (_flag(item), *about["also"])) if about["flag"] else "—"
        kind = "list" if about["kind"] is tuple else about["kind"].__name__
        unit = f", {about['unit']}" if about["unit"] else ""
        default = "—" if item.default in (None, ()) else f"`{item.default}`"
        lines.append(f"| {names} | {flags} | {kind}{unit} | {default} | {about['help']} |")
    return "\n".join(lines)


def _value(item: Field[Any], given: Mapping[str, Any], environ: Mapping[str, str]) -> Any:
    kind = item.metadata["kind"]
    value = given.get(item.name)
    if value is not None:
        return tuple(value) if kind is tuple else value
    name = next((name for name in item.metadata["env"] if environ.get(name, "") != ""), None)
    if name is None:
        return item.default
    if kind is tuple:
        return tuple(part.strip() for part in environ[name].split(",") if part.strip())
    try:
        return kind(environ[name])
    except ValueError as error:
        raise ConfigError(f"{name} is {environ[name]!r}; it must be of type {kind.__name__}") from error


def _check(item: Field[Any], value: Any) -> None:
    about = item.metadata
    if about["choices"] and value not in about["choices"]:
        raise ConfigError(f"unknown judge backend {value!r}: choose one of {', '.join(about['choices'])}")
    least, most = about["least"], about["most"]
    if least is not None and not (value >= least and (most is None or value <= most)):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{_flag(item)} is {value}; it must be {bounds}")


def _flag(item: Field[Any]) -> str:
    return "--" + item.name.replace("_", "-")


def _is_safe(name: str) -> bool:
    return name.startswith(("--judge-", "--prm-", "--majority-"))


if __name__ == "__main__":
    print(markdown())
