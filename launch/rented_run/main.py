"""From a command line to a run on rented GPUs: everything that can be known here is checked before anything starts."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rented_run.asking_first import ask_first
from rented_run.flags import parse
from rented_run.paths import ROOT
from rented_run.words import run_dir
from slime.arguments import parse_args
from slime.errors import ConfigError
from slime.processes.supervisor import only_supervisor


@dataclass(frozen=True)
class Cloud:
    """What one cloud adds.

    Attributes:
        flags: its kind of RentedFlags. title: what `--help` begins with.
        words: (flags, run folder) -> the driver's command line; raises ConfigError for what cannot work.
        provision: (flags, run folder) -> variables for the run's processes; rents what the run needs. Not asked for
            with --dry-run.
    """

    name: str
    title: str
    flags: Any
    words: Callable[[Any, Path], list[str]]
    provision: Callable[[Any, Path], dict[str, str]] = lambda flags, folder: {}


def main(cloud: Cloud, argv: Sequence[str]) -> int:
    """Becomes the supervisor of the run; returns 2 for what was refused, in one line."""
    try:
        flags, rest = parse(cloud.flags, cloud.title, argv)
        folder = run_dir(flags, cloud.name, ROOT)
        words = [*cloud.words(flags, folder), *rest]
        args = parse_args(words)
        driver = [sys.executable, str(ROOT / "slime" / "train_async.py"), *words]
        if flags.dry_run:
            print("# would start, in the run folder", folder)
            print(shlex.join(driver))
            return 0
        with only_supervisor(folder):  # two runs of a folder would train one adapter, and rent twice
            os.environ.update(cloud.provision(flags, folder))
            ask_first(args)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "slime.processes.supervisor", "--run-dir", str(folder), "--", *driver]
    return os.execv(sys.executable, command)
