"""The serving, collecting and judging processes that a training driver starts and watches.

The trainer framework calls `start` through its `--service-path` hook and treats the result as plain data: which
processes, with which command, and where their health is asked. The same processes run without a trainer too
(`python -m openclaw.server`, `python -m openclaw.judge.worker`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from claw_base.ports import listen
from claw_base.run_folder.records import live_processes
from openclaw.errors import ConfigError
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.tokenizer import Tokenizer
from openclaw.judge import settings as judge_settings
from openclaw.judge.teacher import settings as teacher_settings
from openclaw.methods.method import Method
from openclaw.settings import add_flags, as_flags, load_settings
from openclaw.trainer_hooks import companions, standing, trust
from openclaw.trainer_hooks.lease import add_arguments as add_buffer_arguments

GATEWAY_FLAGS = (
    "host", "port", "served_model_name", "policy_id", "temperature", "max_tokens_default", "default_turn_type",
    "request_timeout", "durable", "allow_no_key", "log_level", "memory",
)  # fmt: skip
"""Settings of the gateway that the driver's command line takes and passes on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of gateway, buffer and judge to the driver's command line."""
    add_buffer_arguments(parser)
    add_flags(parser.add_argument_group("gateway", "What clients talk to."), GATEWAY_FLAGS)
    judge = parser.add_argument_group("judge", "Scores each turn by what happened next.")
    judge_settings.add_flags(judge)
    teacher_settings.add_flags(judge)
    judge.add_argument("--num-judge-workers", type=int, default=1, help="judge processes")
    judge.add_argument(
        "--method-path",
        required=True,
        help="module:attr that turns a judged turn into a sample or a counted drop",
    )


def start(args: Any, endpoints: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Describes the gateway and the judge workers.

    Args:
        args: the driver's arguments; see `add_arguments`, plus `run_dir`, `hf_checkpoint` and `context_length`.
        endpoints: `{"policy": [engine urls], "judge": [...], "teacher": [...]}`; the last two may be empty.

    Returns:
        One dictionary a process: name, role, command, url, health_path; judges have a group too, whose number may
        change while they run.

    Raises:
        ConfigError: a model that cannot be served, a port that another program holds, settings that contradict, or a
            count that makes no sense.
    """
    if args.num_judge_workers < 1:
        raise ConfigError(
            f"--num-judge-workers is {args.num_judge_workers}; at least 1 is needed to judge turns"
        )
    check_model(Path(args.hf_checkpoint))
    use_started_engines(args, endpoints)
    check_teacher(args)
    companions.check(args)
    standing.check(args)
    trust.check(args)
    judges = [judge_process(args, index) for index in range(args.num_judge_workers)]
    return [gateway_process(args, endpoints["policy"]), *judges]


def check_model(folder: Path) -> None:
    """Refuses, before anything starts, a model whose conversations cannot be written. Raises ConfigError."""
    found = ModelFolder.read(folder)
    if (folder / "tokenizer.json").is_file():  # a plan is made without one
        ChatFormat(found, Tokenizer(folder))


def gateway_process(args: Any, engine_urls: list[str]) -> dict[str, Any]:
    """The gateway in front of engines that somebody else runs. Settings it is not given come from its environment."""
    given = {name: getattr(args, name) for name in GATEWAY_FLAGS}
    given |= {
        "model_path": args.hf_checkpoint,
        "run_dir": args.run_dir,
        "context_length": args.context_length,
    }
    given |= {"engine_url": engine_urls, "enable_rl_intercept": True, "session_ttl": args.session_ttl}
    flags = as_flags(given) + store_flags(args)
    settings = load_settings(flags)
    check_port(settings.host, settings.port, args.run_dir)
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(settings.host, settings.host)
    return {
        "name": "gateway",
        "role": "gateway",
        "command": [sys.executable, "-m", "openclaw.server", *flags],
        "url": f"http://{reachable}:{settings.port}",
        "health_path": "/healthz",
        "welcome": f"/v1, model {settings.model_name}; talk to it: ./claw chat, or any OpenAI client",
    }


def judge_process(args: Any, index: int) -> dict[str, Any]:
    """One judge worker; any number of them share the buffer."""
    name = f"judge-{index}"
    command = [sys.executable, "-m", "openclaw.judge.worker", "--worker-name", name, *store_flags(args)]
    command += ["--method-path", args.method_path, "--model-path", args.hf_checkpoint]
    for option, value in Method.load(args.method_path).chosen(args).items():
        command += ["--method-option", f"{option}={value:g}"]
    if getattr(args, "teacher_source", None):
        command += ["--teacher-source", args.teacher_source]
    command += judge_settings.as_flags(args) + teacher_settings.as_flags(args)
    return {
        "name": name,
        "role": "judge",
        "command": command,
        "url": None,
        "health_path": "/healthz",
        "group": "judge",
    }


def use_started_engines(args: Any, endpoints: dict[str, list[str]]) -> None:
    """Judge and teacher engines that the driver starts are used unless others are named."""
    if endpoints.get("judge"):
        args.judge_engine_url = args.judge_engine_url or endpoints["judge"]
        args.judge_backend = args.judge_backend or "engine"
        args.prm_model_path = args.prm_model_path or args.prm_hf_checkpoint or args.hf_checkpoint
    if endpoints.get("teacher"):
        args.opd_teacher_url = args.opd_teacher_url or endpoints["teacher"]
        folder = args.prm_teacher_hf_checkpoint or args.hf_checkpoint
        args.opd_teacher_model_path = args.opd_teacher_model_path or folder


def check_teacher(args: Any) -> None:
    """Refuses, before anything starts, settings of judge and teacher that contradict. Raises ConfigError."""
    settings, engines = judge_settings.load_settings(args), teacher_settings.load_settings(args)
    method = Method.load(args.method_path)
    needs = method.needs({"eval_mode": settings.eval_mode, **method.chosen(args)})
    if teacher_settings.is_asked(needs, getattr(args, "teacher_source", None) or "trainer"):
        teacher_settings.teacher_engines(engines, settings)


def store_flags(args: Any) -> list[str]:
    """The flags that name the rollout buffer, for any process that opens it. Raises ConfigError for a password, which
    everybody on the machine could read in the list of processes."""
    if args.rl_buffer_url:
        try:
            secret = make_url(args.rl_buffer_url).password
        except ArgumentError as error:
            raise ConfigError(f"--rl-buffer-url cannot be used: {error}") from error
        if secret is not None:
            raise ConfigError(
                "--rl-buffer-url has a password: leave it out there, and set PGPASSWORD or ~/.pgpass"
            )
        return ["--rl-buffer-url", args.rl_buffer_url]
    return ["--rl-buffer-dir", args.rl_buffer_dir]


def check_port(host: str, port: int, run_dir: str) -> None:
    """Refuses a port that another program holds. A gateway of this very run folder, its door or its spare may hold it:
    it is adopted.

    Raises:
        ConfigError: the port is taken.
    """
    if not 1 <= port <= 65535:
        raise ConfigError(f"port {port} does not exist; give one from 1 to 65535 with PORT=...")
    if any(process["name"].partition(".")[0] == "gateway" for process in live_processes(Path(run_dir))):
        return
    listen(host, port).close()
