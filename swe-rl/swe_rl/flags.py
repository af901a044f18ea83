"""Flags of this track, with variables of their own."""

from __future__ import annotations

from dataclasses import dataclass

from slime.arguments.declare import flag


@dataclass(frozen=True)
class SweFlags:
    """Limits of an episode, and what a patch may not touch."""

    step_limit: int = flag(
        20, "answers of the model in an episode", env=("SWE_STEP_LIMIT", "MAX_STEPS"), least=1
    )
    step_timeout: float = flag(60.0, "seconds of one command", env=("SWE_STEP_TIMEOUT",), above=0)
    eval_timeout: float = flag(300.0, "seconds of the tests that decide", env=("SWE_EVAL_TIMEOUT",), above=0)
    parallel_envs: int = flag(8, "episodes at a time", env=("PARALLEL_ENVS", "SWE_MAX_CONCURRENT"), least=1)
    strict_no_test_patch: bool = flag(
        True, "a patch that touches tests is not graded", env=("SWE_STRICT_NO_TEST_PATCH",)
    )
    strict_no_config_patch: bool = flag(
        True,
        "a patch that touches what configures tests, build or CI is not graded",
        env=("SWE_STRICT_NO_CONFIG_PATCH",),
    )


FLAGS: tuple[type, ...] = (SweFlags,)
