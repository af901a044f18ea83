"""Starts a run on rented GPUs from a command line; everything that can be checked here is checked before."""

from __future__ import annotations

import os
import shlex
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.files import check_writable
from claw_base.run_folder.start_check import check_port, check_unused
from claw_base.run_folder.usage import Meter, meter_path
from rented_run.flags import parse
from rented_run.paths import ROOT
from rented_run.words import run_dir
from slime.arguments import parse_args
from slime.errors import ConfigError
from slime.plan.refusals import check_wandb
from slime.processes.supervisor import only_supervisor
from slime.rented.engine.launch import check_tokenizer
from slime.rented.engine.model_folder import ModelFolder
from slime.rented.service import ServiceAway, ServiceRefuses, ServiceSettings, connect

TIMEOUT = 20.0  # seconds in which the service must answer before the start


@dataclass(frozen=True)
class Cloud:
    """The parts of a run that differ by provider.

    Attributes:
        flags: its subclass of RentedFlags. title: first line of `--help`.
        words: (flags, run folder, variables) -> the driver's command line; raises ConfigError for invalid settings.
        sdk, key: raise ConfigError for an SDK that is missing or was not tried, for a key that is missing or is none.
        provision: (flags, run folder) -> variables for the run's processes; rents what the run needs. Not asked for
            with --dry-run.
    """

    name: str
    title: str
    flags: Any
    words: Callable[[Any, Path, Mapping[str, str]], list[str]]
    sdk: Callable[[], None]
    key: Callable[[], str]
    provision: Callable[[Any, Path], dict[str, str]] = lambda flags, folder: {}


def main(cloud: Cloud, argv: Sequence[str]) -> int:
    """Turns this process into the supervisor of the run; returns 2 after an error in one line."""
    try:
        flags, folder, words, args = read(cloud, argv)
        driver = [sys.executable, str(ROOT / "slime" / "train_async.py"), *words]
        if flags.dry_run:
            print("# would start, in the run folder", folder)
            print(shlex.join(driver))
            return 0
        with only_supervisor(folder):  # two runs in one folder would train one adapter and rent twice
            os.environ.update(cloud.provision(flags, folder))
            ask_first(args)
        if flags.wandb_run_name:
            os.environ.setdefault("WANDB_NAME", flags.wandb_run_name)  # the name used by the wandb package
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(folder), "--", *driver]
    return os.execv(sys.executable, command)


def read(cloud: Cloud, argv: Sequence[str], installed: bool = True) -> tuple[Any, Path, list[str], Any]:
    """Returns flags, run folder, the driver's command line and its parsed arguments.

    Args:
        installed: also check the SDK and other packages.

    Raises:
        ConfigError: invalid settings; a run folder or port that cannot be used.
        SystemExit: after --help, and after an invalid value.
    """
    flags, rest = parse(cloud.flags, cloud.title, argv)
    folder = run_dir(flags, cloud.name, ROOT)
    if installed:
        cloud.sdk()
    cloud.key()
    words = [*cloud.words(flags, folder, os.environ), *rest]
    args = parse_args(words, packages=installed)
    check_wandb(args, os.environ)
    check_writable(folder)
    check_unused(folder)
    check_port(flags.proxy_host, flags.proxy_port, str(folder))
    return flags, folder, words, args


def ask_first(args: Any) -> None:
    """Checks before anything starts that the service accepts the key, has the model, and decodes this tokenizer's ids to
    the same text.

    If the service cannot be reached, one line is logged and the run starts: it waits for the service.

    Args:
        args: parsed arguments of the driver.

    Raises:
        ConfigError: the service refuses the run.
    """
    answer: Future[int] = Future()
    threading.Thread(target=_answer, args=(answer, args), daemon=True).start()
    try:
        Meter(meter_path(args.run_dir, "start"), "serving").add(prefill=answer.result(TIMEOUT))
    except ServiceRefuses as error:
        raise ConfigError(f"the service refuses this run: {error}") from error
    except (ServiceAway, TimeoutError) as error:
        reason = str(error) or f"no answer for {TIMEOUT:g} s"
        print(
            f"the service does not answer, the run starts and waits for it: {reason}",
            file=sys.stderr,
            flush=True,
        )


def _answer(answer: Future[int], args: Any) -> None:
    try:
        service = connect(args.rented_service, ServiceSettings(args.rented_model, args.rented_url))
        service.check()
        folder = ModelFolder.read(args.hf_checkpoint)
        answer.set_result(check_tokenizer(service.sampler(None), folder))
    except Exception as error:
        answer.set_exception(error)
