"""Flags of this track, with variables of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import flag


@dataclass(frozen=True)
class SweFlags:
    """Limits of an episode, what a patch may not touch, and where repositories are worked in."""

    step_limit: int = flag(
        20, "answers of the model in an episode", env=("SWE_STEP_LIMIT", "MAX_STEPS"), least=1
    )
    step_timeout: float = flag(60.0, "seconds of one command", env=("SWE_STEP_TIMEOUT",), above=0)
    swe_eval_timeout: float = flag(
        300.0, "seconds of the tests that decide", env=("SWE_EVAL_TIMEOUT",), above=0
    )
    parallel_envs: int = flag(8, "episodes at a time", env=("PARALLEL_ENVS", "SWE_MAX_CONCURRENT"), least=1)
    strict_no_test_patch: bool = flag(
        True, "a patch that touches tests is not graded", env=("SWE_STRICT_NO_TEST_PATCH",)
    )
    strict_no_config_patch: bool = flag(
        True,
        "a patch that touches what configures tests, build or CI is not graded",
        env=("SWE_STRICT_NO_CONFIG_PATCH",),
    )
    swe_harness: Literal["own", "mini-swe-agent"] = flag(
        "own", "whose loop and prompts an episode has", env=("SWE_HARNESS",)
    )
    swe_config: str = flag(
        "swebench",
        "with mini-swe-agent: one of its configurations (swebench: tool calls, swebench_backticks: text), or a file",
        env=("SWE_CONFIG_PATH",),
    )
    env_server_url: str | None = flag(
        None,
        "address of a pool of repositories, or of a router over several; boxes then run there",
        env=("SWE_ENV_SERVER_URL", "ENV_SERVER_URL"),
    )
    exec_server_urls: str | None = flag(
        None,
        "addresses of the pools of several hosts, with commas: the run starts a router over them, and watches it",
        env=("SWE_EXEC_SERVER_URLS",),
    )
    router_port: int = flag(
        18090, "of that router, on the loopback address", env=("SWE_ENV_SERVER_PORT",), least=1
    )
    env_server_key_file: str | None = flag(
        None, "holds the key of pools that others can reach", env=("SWE_ENV_SERVER_KEY_FILE",)
    )


FLAGS: tuple[type, ...] = (SweFlags,)
