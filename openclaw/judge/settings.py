"""Every flag and environment variable of the judge: type, unit, default and a sentence, declared once.

Flags win over variables, variables over defaults. A setting's first flag is safe on a training driver's command
line, where other parts have flags too; the short forms are the judge's own. `python -m openclaw.judge.settings`
prints the table for the documentation.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from openclaw.common import declare
from openclaw.common.declare import option
from openclaw.errors import ConfigError

BACKEND_NAMES = ("rules", "engine", "openai", "learned")
_SAFE = ("--judge-", "--prm-", "--majority-")
"""How flags begin that no other part of a driver's command line has."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """The judge's configuration. Raises ConfigError for a number out of range or a backend that lacks its
    address."""

    judge_backend: str = option(
        str, "rules", "Who judges: rules (no model), engine (our engines), openai (any such URL), "
        "learned (from stored votes).",
        ("JUDGE_BACKEND",), also=("--backend",), choices=BACKEND_NAMES,
    )  # fmt: skip
    prm_m: int = option(
        int, 1, "Votes a turn; the majority counts.", ("PRM_M", "MAJORITY_VOTE_N"),
        also=("--majority-vote-n", "--votes"), least=1,
    )  # fmt: skip
    majority_vote_threshold: float = option(
        float, 0.0, "Share of the valid votes that the majority must reach, else the score is 0.",
        ("MAJORITY_VOTE_THRESHOLD",), also=("--vote-threshold",), least=0, most=1,
    )  # fmt: skip
    prm_temperature: float = option(
        float, 0.6, "Sampling temperature of a judge model.", ("PRM_TEMPERATURE",), least=0, most=2
    )
    prm_max_new_tokens: int = option(
        int, 4096, "Longest reply of a judge model.", ("PRM_MAX_NEW_TOKENS",), "tokens", least=1
    )
    prm_model_path: str | None = option(
        str, None, "Folder of the judge model's tokenizer and chat template (backend engine).",
        ("PRM_MODEL_PATH", "JUDGE_MODEL_PATH"), "path",
    )  # fmt: skip
    judge_engine_url: tuple[str, ...] = option(
        tuple, (), "Engine that runs the judge model (backend engine); repeatable.",
        ("JUDGE_ENGINE_URL",), "URL", also=("--engine-url",),
    )  # fmt: skip
    judge_url: str | None = option(
        str, None, "Base URL of an OpenAI-compatible API, with /v1 where it has that (backend openai).",
        ("JUDGE_URL",), "URL",
    )  # fmt: skip
    judge_model: str | None = option(
        str, None, "Name of the judge model at that API (backend openai).", ("JUDGE_MODEL",)
    )
    judge_api_key: str | None = option(
        str, None, "Key of that API (backend openai).", ("JUDGE_API_KEY",), flag=False
    )
    judge_learned_file: str | None = option(
        str, None, "File that python -m openclaw.judge.learned wrote (backend learned).",
        ("JUDGE_LEARNED_FILE",), "path",
    )  # fmt: skip
    judge_prompt_dir: str | None = option(
        str, None, "Folder whose eval.md and hint.md replace the shipped prompts.",
        ("JUDGE_PROMPT_DIR",), "path", also=("--prompt-dir",),
    )  # fmt: skip
    judge_timeout: float = option(
        float, 120.0, "Longest time for all votes of one turn, retries included.",
        ("JUDGE_TIMEOUT",), "seconds", also=("--timeout",), least=0.001,
    )  # fmt: skip
    judge_request_timeout: float = option(
        float, 60.0, "Longest time of one request to a judge model.",
        ("JUDGE_REQUEST_TIMEOUT",), "seconds", also=("--request-timeout",), least=0.001,
    )  # fmt: skip
    judge_retries: int = option(
        int,
        2,
        "How often one vote's request is sent again.",
        ("JUDGE_RETRIES",),
        also=("--retries",),
        least=0,
    )
    judge_retry_budget: float = option(
        float, 0.2, "Retries that all requests together may cost, as a share of them (10 are always free).",
        ("JUDGE_RETRY_BUDGET",), also=("--retry-budget",), least=0,
    )  # fmt: skip
    judge_attempts: int = option(
        int, 5, "Tries before a turn is dropped as judge_error; while the judge answers nobody, none is counted.",
        ("JUDGE_ATTEMPTS",), also=("--attempts",), least=1,
    )  # fmt: skip
    judge_concurrency: int = option(
        int, 8, "Turns judged at a time by one worker.", ("JUDGE_CONCURRENCY",), also=("--concurrency",), least=1
    )  # fmt: skip
    judge_max_requests: int = option(
        int, 32, "Requests to judge models that one worker has open at a time.",
        ("JUDGE_MAX_REQUESTS",), also=("--max-requests",), least=1,
    )  # fmt: skip
    judge_cache_size: int = option(
        int, 1024, "Answered questions kept, so that the same question costs nothing; 0: none.",
        ("JUDGE_CACHE_SIZE",), "questions", also=("--cache-size",), least=0,
    )  # fmt: skip
    judge_metrics_interval: float = option(
        float, 60.0, "How often the metrics are logged.",
        ("JUDGE_METRICS_INTERVAL",), "seconds", also=("--metrics-interval",), least=0.01,
    )  # fmt: skip
    eval_mode: int = option(
        int, 1, "1: turns get a score too where the method trains on hints alone, for the curve; 0: they do not.",
        ("OPENCLAW_EVAL_MODE",), least=0, most=1,
    )  # fmt: skip
    judge_hint_max_chars: int = option(
        int, 2000, "Longest hint; a longer text is left out, counted.", ("OPENCLAW_HINT_MAX_CHARS",), "characters",
        least=11,
    )  # fmt: skip
    judge_neutral_limit: float = option(
        float, 0.8, "Share of neutral scores from which an alarm is logged.",
        ("JUDGE_NEUTRAL_LIMIT",), also=("--neutral-limit",), least=0, most=1,
    )  # fmt: skip
    judge_neutral_window: int = option(
        int, 50, "Last judgements that the alarm looks at.",
        ("JUDGE_NEUTRAL_WINDOW",), "judgements", also=("--neutral-window",), least=1,
    )  # fmt: skip

    def __post_init__(self) -> None:
        declare.check(self)
        if self.judge_backend == "engine" and not (self.judge_engine_url and self.prm_model_path):
            raise ConfigError("the engine judge needs --judge-engine-url and --prm-model-path")
        key = self.judge_api_key
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise ConfigError("JUDGE_API_KEY has a blank, a line break or a character that is no ASCII in it")
        if self.judge_backend == "openai" and not (self.judge_url and self.judge_model):
            raise ConfigError("the openai judge needs --judge-url and --judge-model")
        if self.judge_backend == "learned" and not self.judge_learned_file:
            raise ConfigError(
                "the learned judge needs --judge-learned-file; python -m openclaw.judge.learned writes one"
            )


def add_flags(parser: argparse._ActionsContainer, short: bool = False) -> None:
    """Adds the judge's flags to any parser, with the short forms too if asked; what the command line does
    not name stays None."""
    declare.add_flags(parser, JudgeSettings, prefixes=("--",) if short else _SAFE)


def load_settings(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> JudgeSettings:
    """The settings of a parsed command line (see `add_flags`). Raises ConfigError."""
    return declare.load(JudgeSettings, vars(args), environ)


def as_flags(args: argparse.Namespace) -> list[str]:
    """The command-line words that pass on what a parsed command line names of these settings."""
    return declare.as_flags(JudgeSettings, vars(args))


def markdown() -> str:
    """The settings as a table."""
    return declare.markdown(JudgeSettings)


if __name__ == "__main__":
    print(markdown())
