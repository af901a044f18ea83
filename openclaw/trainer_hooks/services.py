"""The serving, collecting and judging processes that a training driver starts and watches.

The trainer framework calls `start` through its `--service-path` hook and gets plain data: the processes, their
commands, and their health URLs. The same processes can also run without a trainer (`python -m openclaw.server`,
`python -m openclaw.judge.worker`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from claw_base.run_folder.admin_key import FILE
from claw_base.run_folder.start_check import check_port
from claw_base.settings.declare import flags_of, read
from openclaw.errors import ConfigError
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.tokenizer import Tokenizer
from openclaw.judge import settings as judge_settings
from openclaw.judge.teacher import settings as teacher_settings
from openclaw.methods.method import Method
from openclaw.settings import Settings, add_flags, as_flags, load_settings
from openclaw.trainer_hooks import adapter_turns, dreams, replay, standing_preferences, trust
from openclaw.trainer_hooks.arguments import (
    BATCH_FLAGS,
    BufferArguments,
    HookSettings,
    JudgeProcessArguments,
    by_name,
)

FROM_TRAINER = {
    *("model_path", "run_dir", "context_length", "session_ttl", "enable_rl_intercept", "train_adapters"),
    *("engine_url", "backend", "max_loaded_adapters"),  # the trainer sets up engines
    *("rl_buffer_dir", "rl_buffer_url"),
}
"""Settings of the gateway that are derived from flags of the trainer and of `FLAGS`."""
GATEWAY_FLAGS = tuple(
    item.name for item in flags_of(Settings) if not (item.variable_only or item.name in FROM_TRAINER)
)
"""All other settings, which the driver's command line accepts and passes on."""

FLAGS = (*BATCH_FLAGS, JudgeProcessArguments)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags declared by gateway and judge; flags that are not set come from the processes' environment."""
    add_flags(
        parser.add_argument_group("gateway", "The OpenAI-compatible server for clients."), GATEWAY_FLAGS
    )
    judge = parser.add_argument_group("judge", "Scores each turn by the message after it.")
    judge_settings.add_flags(judge)
    teacher_settings.add_flags(judge)


@dataclass(frozen=True)
class ServedFlags:
    """Flags of trainer, judge and teacher that the processes need, by their names."""

    context_length: int | None
    prm_context_length: int | None
    judge_context_length: int | None
    prm_hf_checkpoint: str | None
    prm_teacher_hf_checkpoint: str | None
    judge_engine_url: list[str] | None
    judge_backend: str | None
    judge_reader_url: list[str] | None
    judge_reader_model: str | None
    prm_model_path: str | None
    opd_teacher_url: list[str] | None
    opd_teacher_model_path: str | None


def start(args: object, endpoints: Mapping[str, list[str]]) -> list[dict[str, Any]]:
    """Describes the gateway and the judge workers.

    Args:
        args: the driver's arguments: those of `FLAGS` and `add_arguments`, and the trainer's own.
        endpoints: `{"policy": [engine urls], "judge": [...], "teacher": [...]}`; the last two may be empty.

    Returns:
        One dictionary a process: name, role, command, url, health_path; judges have a group too, whose number may
        change while they run.

    Raises:
        ConfigError: a model that cannot be served, a port in use, contradictory settings, or an invalid count.
    """
    services = checked_services(args, endpoints)
    workers = [services.judge(index) for index in range(read(JudgeProcessArguments, args).num_judge_workers)]
    return [services.gateway(endpoints["policy"]), *workers]


def check_arguments(args: object, endpoints: Mapping[str, list[str]], env: Mapping[str, str]) -> None:
    """For a dry run: raises ConfigError for anything that `start` would reject on any machine. Whether the port is
    free depends on the machine. Arguments as of `start`; `env`: the variables of its processes."""
    services = checked_services(argparse.Namespace(**vars(args)), endpoints, env)
    services.judge(0)
    services.gateway_settings(endpoints["policy"])


def check_settings(args: object, endpoints: Mapping[str, list[str]], env: Mapping[str, str]) -> None:
    """For a first start, before packages are installed: raises ConfigError for settings of gateway, judge and teacher
    that `start` would reject. Needs no packages. Arguments as of `check_arguments`."""
    settings, arguments = HookSettings.of(args), argparse.Namespace(**vars(args))
    vars(arguments).update(
        started_engines(by_name(ServedFlags, arguments), settings.trainer.hf_checkpoint, endpoints)
    )
    judge_settings.load_settings(arguments, env)
    teacher_settings.load_settings(arguments, env)
    # not `store_flags`, which needs a package to detect a password in the URL
    url = settings.buffer.rl_buffer_url
    store = ["--rl-buffer-url", url] if url else ["--rl-buffer-dir", "buffer"]
    Services(settings, "", arguments, env).gateway_settings(endpoints["policy"], store=store)


def checked_services(
    args: object, endpoints: Mapping[str, list[str]], env: Mapping[str, str] | None = None
) -> Services:
    """Returns the services of a run with consistent settings; adds the engines' addresses to `args`.

    Raises:
        ConfigError: as `start`.
    """
    settings, judges = HookSettings.of(args), read(JudgeProcessArguments, args)
    if not judges.method_path:
        raise ConfigError(
            "--method-path is missing: give the function that makes a sample from a judged turn, module:attr"
        )
    check_model(Path(settings.trainer.hf_checkpoint))
    # the run folder records the arguments, including these
    vars(args).update(started_engines(by_name(ServedFlags, args), settings.trainer.hf_checkpoint, endpoints))
    services = Services(settings, judges.method_path, argparse.Namespace(**vars(args)), env)
    services.check_teacher()
    replay.check(settings)
    dreams.check(settings)
    standing_preferences.check(settings)
    trust.check(settings)
    adapter_turns.check(settings)
    return services


def check_model(folder: Path) -> None:
    """Rejects, before anything starts, a model without a usable chat template. Raises ConfigError."""
    folder_read = ModelFolder.read(folder)
    if (folder / "tokenizer.json").is_file():  # a plan works without the model's files
        ChatFormat(folder_read, Tokenizer(folder))


def started_engines(flags: ServedFlags, model: str, endpoints: Mapping[str, list[str]]) -> dict[str, object]:
    """Returns settings of judge and teacher for the engines that the driver starts, unless others are configured."""
    engines: dict[str, object] = {}
    if endpoints.get("judge"):
        engines["judge_engine_url"] = flags.judge_engine_url or endpoints["judge"]
        engines["judge_backend"] = flags.judge_backend or "engine"
        engines["prm_model_path"] = flags.prm_model_path or flags.prm_hf_checkpoint or model
        context = flags.prm_context_length or flags.context_length
        engines["judge_context_length"] = flags.judge_context_length or context
    if judge_settings.SERVED in (flags.judge_reader_url or ()):
        engines["judge_reader_url"] = endpoints["policy"]
        engines["judge_reader_model"] = flags.judge_reader_model or model
    if endpoints.get("teacher"):
        engines["opd_teacher_url"] = flags.opd_teacher_url or endpoints["teacher"]
        folder = flags.prm_teacher_hf_checkpoint or model
        engines["opd_teacher_model_path"] = flags.opd_teacher_model_path or folder
    return engines


@dataclass(frozen=True)
class Services:
    """The processes of one run; `parsed`: all flags of the driver by name, `env`: its variables (None: those of this
    process)."""

    settings: HookSettings
    method_path: str
    parsed: argparse.Namespace
    env: Mapping[str, str] | None = None

    @property
    def method(self) -> Method:
        return Method.load(self.method_path)

    def gateway_settings(
        self, engine_urls: list[str], store: list[str] | None = None
    ) -> tuple[list[str], Settings]:
        """Returns the flags of the gateway for engines that the driver starts, and the resulting settings. Settings
        that the driver does not set come from the gateway's environment. Raises ConfigError for contradictory values.

        Args:
            store: flags that name the rollout buffer; default: those of the settings.
        """
        trainer, known = self.settings.trainer, vars(self.parsed)
        values: dict[str, object] = {name: known[name] for name in GATEWAY_FLAGS}
        values |= {"model_path": trainer.hf_checkpoint, "run_dir": trainer.run_dir}
        values |= {"context_length": by_name(ServedFlags, self.parsed).context_length}
        values |= {"engine_url": engine_urls, "enable_rl_intercept": True}
        values |= {"session_ttl": self.settings.buffer.session_ttl}
        values |= {"train_adapters": self.settings.served.train_adapters}
        flags = as_flags(values) + (store_flags(self.settings.buffer) if store is None else store)
        return flags, load_settings(flags, self.env)

    def gateway(self, engine_urls: list[str]) -> dict[str, Any]:
        """Returns the gateway's process. Raises as `gateway_settings`, and ConfigError for a port that is taken."""
        trainer = self.settings.trainer
        flags, gateway = self.gateway_settings(engine_urls)
        check_port(gateway.host, gateway.port, trainer.run_dir)
        asks = (
            ""
            if gateway.admin_key or not gateway.client_keys
            else f"; its admin key: {trainer.run_dir}/{FILE}"
        )
        reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(gateway.host, gateway.host)
        return {
            "name": "gateway",
            "role": "gateway",
            "command": [sys.executable, "-m", "openclaw.server", *flags],
            "url": f"http://{reachable}:{gateway.port}",
            "health_path": "/healthz",
            "welcome": f"/v1, model {gateway.model_name}; talk to it: ./claw chat, or any OpenAI client{asks}",
        }

    def judge(self, index: int) -> dict[str, Any]:
        """Returns one judge worker; any number of them share the buffer."""
        name, source = f"judge-{index}", self.settings.trainer.teacher_source
        command = [sys.executable, "-m", "openclaw.judge.worker", "--worker-name", name]
        command += store_flags(self.settings.buffer)
        command += ["--method-path", self.method_path, "--model-path", self.settings.trainer.hf_checkpoint]
        for option, value in self.method.chosen(vars(self.parsed)).items():
            command += ["--method-option", f"{option}={value:g}"]
        command += ["--teacher-source", source] if source else []
        command += judge_settings.as_flags(self.parsed) + teacher_settings.as_flags(self.parsed)
        return {
            "name": name,
            "role": "judge",
            "command": command,
            "url": None,
            "health_path": "/healthz",
            "group": "judge",
        }

    def check_teacher(self) -> None:
        """Raises ConfigError for contradictory settings of judge and teacher."""
        judge = judge_settings.load_settings(self.parsed, self.env)
        engines = teacher_settings.load_settings(self.parsed, self.env)
        options = {"eval_mode": judge.eval_mode, **self.method.chosen(vars(self.parsed))}
        source = self.settings.trainer.teacher_source or "trainer"
        if teacher_settings.is_asked(self.method.needs(options), source):
            teacher_settings.teacher_engines(engines, judge)


def store_flags(buffer: BufferArguments) -> list[str]:
    """Returns the flags of the rollout buffer, for any process that opens it. Raises ConfigError for a password,
    which all users of the machine could see in the process list."""
    if buffer.rl_buffer_url:
        try:
            secret = make_url(buffer.rl_buffer_url).password
        except ArgumentError as error:
            raise ConfigError(f"--rl-buffer-url cannot be used: {error}") from error
        if secret is not None:
            raise ConfigError(
                "--rl-buffer-url has a password: leave it out there, and set PGPASSWORD or ~/.pgpass"
            )
        return ["--rl-buffer-url", buffer.rl_buffer_url]
    if not buffer.rl_buffer_dir:
        raise ConfigError("no rollout buffer: give --rl-buffer-dir or --rl-buffer-url")
    return ["--rl-buffer-dir", buffer.rl_buffer_dir]
