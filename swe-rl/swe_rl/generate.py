"""The track's hooks: `--custom-generate-function-path swe_rl.generate.generate`, and `--service-path
swe_rl.generate.start`, which rejects invalid settings before anything starts. With environments on other hosts, it
also starts their router."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from claw_base.settings.declare import flag, read
from slime.agents import Environment, EpisodeLimits, agent
from slime.agents.generate import Generate
from slime.errors import ConfigError
from slime.plan.environments import EnvironmentUse
from slime.pool import PoolEnvironment
from slime.pool.keys import check_address
from slime.sandbox import require_sandbox
from slime.sandbox.command import box_python
from slime.types import Sample
from swe_rl.checkout import LIMITS, WORKSPACE_BYTES
from swe_rl.environment import SweEnvironment, anything
from swe_rl.grade import Grader
from swe_rl.instance import Instance
from swe_rl.mini import MiniSweEnvironment, TextFormat
from swe_rl.patch import PatchPolicy
from swe_rl.repository import test_packages

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

__all__ = ["FLAGS", "environment_use", "generate", "maker", "start"]
OVERFLOW = {"context": "context_overflow", "answer": "answer_too_long", "parse_errors": "format_errors"}


@dataclass(frozen=True)
class SweFlags:
    """Limits of an episode, files that a patch may not change, and hosts of the repositories."""

    step_limit: int = flag(
        20, "turns of the model in one episode", env=("SWE_STEP_LIMIT", "MAX_STEPS"), least=1
    )
    step_timeout: float = flag(60.0, "time limit of one command", env=("SWE_STEP_TIMEOUT",), above=0)
    swe_eval_timeout: float = flag(
        300.0, "time limit of the grading tests", env=("SWE_EVAL_TIMEOUT",), above=0
    )
    parallel_envs: int = flag(8, "concurrent episodes", env=("PARALLEL_ENVS", "SWE_MAX_CONCURRENT"), least=1)
    strict_no_test_patch: bool = flag(
        True, "reject patches that change tests", env=("SWE_STRICT_NO_TEST_PATCH",)
    )
    strict_no_config_patch: bool = flag(
        True,
        "reject patches that change the configuration of tests, build or CI",
        env=("SWE_STRICT_NO_CONFIG_PATCH",),
    )
    swe_harness: Literal["own", "mini-swe-agent"] = flag(
        "own", "agent loop and prompts of an episode", env=("SWE_HARNESS",)
    )
    swe_config: str = flag(
        "swebench",
        "mini-swe-agent: name of a built-in configuration (swebench: tool calls, "
        "swebench_backticks: text), or a file",
        env=("SWE_CONFIG_PATH",),
    )
    env_server_url: str | None = flag(
        None,
        "address of a pool of repositories or its router; sandboxes then run there",
        env=("SWE_ENV_SERVER_URL", "ENV_SERVER_URL"),
    )
    exec_server_urls: str | None = flag(
        None,
        "addresses of pools, separated by commas; the run starts and monitors a router over them",
        env=("SWE_EXEC_SERVER_URLS",),
    )
    router_port: int = flag(
        18090, "port of that router, on the loopback address", env=("SWE_ENV_SERVER_PORT",), least=1
    )
    tasks_dir: str | None = flag(
        None,
        "folder that must contain the repositories and image archives of requests (default: no paths)",
        env=("SWE_TASKS_DIR",),
    )
    env_server_key_file: str | None = flag(
        None, "file with the key of external pools", env=("SWE_ENV_SERVER_KEY_FILE",)
    )


FLAGS: tuple[type, ...] = (SweFlags,)


async def generate(
    args: GenerationSide, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> Sample | list[Sample]:
    """Runs one episode; see `slime.agents.agent`. An episode that a limit ended has its own exit status."""
    done = await _agent(read(SweFlags, args))(args, sample, sampling_params, evaluation)
    for one in done if isinstance(done, list) else [done]:
        about = one.metadata.get("episode", {})
        if about.get("ended_by") in OVERFLOW:
            about["exit_status"] = OVERFLOW[about["ended_by"]]
    return done


def environment_use(args: GenerationSide) -> EnvironmentUse | None:
    """Returns the resources of a sandbox and its workspace per concurrent episode, for the plan; None if a pool
    provides them."""
    flags = read(SweFlags, args)
    here = pool_of(flags) is None
    return EnvironmentUse(flags.parallel_envs, LIMITS.memory, WORKSPACE_BYTES) if here else None


def start(args: GenerationSide, endpoints: object) -> Sequence[Any]:
    """Returns the router over other hosts, which slime starts, monitors and restarts; an empty list if episodes run
    here or in an existing pool.

    Raises:
        ConfigError: sandboxes do not work, required packages could not be installed, both kinds of pools are given,
            or the key file cannot be read.
    """
    check_arguments(args)
    flags = read(SweFlags, args)
    if pool_of(flags) is None:
        require_sandbox()
        test_packages(box_python()[0])
        maker(flags)
    return [] if flags.exec_server_urls is None else [_router(flags)]


def check_arguments(args: GenerationSide, endpoints: object = None, env: object = None) -> None:
    """Raises ConfigError, also in a dry run, if both kinds of pools are given, an address is invalid, or the key file
    cannot be read."""
    flags = read(SweFlags, args)
    if flags.env_server_url and flags.exec_server_urls:
        raise ConfigError(
            "--env-server-url is a pool that runs, --exec-server-urls are hosts to route to: give one"
        )
    if flags.env_server_url:
        check_address("--env-server-url (SWE_ENV_SERVER_URL, ENV_SERVER_URL)", flags.env_server_url)
    for url in filter(None, (flags.exec_server_urls or "").split(",")):
        check_address("--exec-server-urls (SWE_EXEC_SERVER_URLS)", url.strip())
    key_of(flags)


def _router(flags: SweFlags) -> dict[str, Any]:
    words = ["--pools", str(flags.exec_server_urls), "--port", str(flags.router_port)]
    if flags.env_server_key_file is not None:
        words += ["--key-file", flags.env_server_key_file]
    return {
        "name": "repositories",
        "role": "environments",
        "command": [sys.executable, "-m", "slime.pool", *words],
        "url": f"http://127.0.0.1:{flags.router_port}",
        "health_path": "/healthz",
    }


def pool_of(flags: SweFlags) -> str | None:
    """Returns the address of the environments; None: they run in this process."""
    if flags.exec_server_urls is not None:
        return f"http://127.0.0.1:{flags.router_port}"
    return flags.env_server_url


def key_of(flags: SweFlags) -> str | None:
    """Raises ConfigError if the key cannot be read."""
    if flags.env_server_key_file is None:
        return None
    try:
        return Path(flags.env_server_key_file).read_text().strip()
    except OSError as error:
        raise ConfigError(f"--env-server-key-file {flags.env_server_key_file}: {error.strerror}") from error


def maker(flags: SweFlags, check: Callable[[Instance], None] = anything) -> Callable[[], Environment]:
    """Returns a function that creates environments in this process, for instances that `check` accepts. Raises
    ConfigError."""
    grader = Grader(
        PatchPolicy(flags.strict_no_test_patch, flags.strict_no_config_patch), flags.swe_eval_timeout
    )
    threads = ThreadPoolExecutor(flags.parallel_envs, thread_name_prefix="repositories")
    settings = (grader, flags.step_timeout, threads)
    if flags.swe_harness == "own":
        return lambda: SweEnvironment(*settings, check=check)
    make = functools.partial(MiniSweEnvironment, flags.swe_config, *settings, flags.step_limit, check)
    make()
    return make


@functools.cache
def _agent(flags: SweFlags) -> Generate:
    url, key = pool_of(flags), key_of(flags)
    return agent(
        maker(flags) if url is None else lambda: PoolEnvironment(url, key),
        EpisodeLimits(turns=flags.step_limit),
        parallel=flags.parallel_envs,
        format=TextFormat() if flags.swe_harness == "mini-swe-agent" else None,
    )
