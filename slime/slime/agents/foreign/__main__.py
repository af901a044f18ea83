"""Writes the tasks of a third-party environment as rows for --prompt-data:

python -m slime.agents.foreign my_env.py:environments --count 500 --out train.jsonl
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.agents.foreign.verifiers import VerifiersEnvironments
from slime.errors import ConfigError, EnvironmentAway
from slime.plugins import load_attr


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The tasks to write."""

    environments: str = flag(REQUIRED, "instance of VerifiersEnvironments: file.py:NAME", positional=True)
    first: int = flag(0, "number of the first task")
    count: int = flag(1000, "maximum number of tasks")
    out: Path = flag(REQUIRED, "output file")


def main(argv: Sequence[str] | None = None) -> None:
    flags = parse(Rows, argv, "python -m slime.agents.foreign", __doc__)
    try:
        environments = load_attr(flags.environments)
        if not isinstance(environments, VerifiersEnvironments):
            raise ConfigError(
                f"{flags.environments} is a {type(environments).__name__}, not VerifiersEnvironments"
            )
        rows = asyncio.run(_rows(environments, flags.first, flags.count))
    except (ConfigError, EnvironmentAway) as error:
        sys.exit(f"python -m slime.agents.foreign: {error}")
    write_text(flags.out, "".join(json.dumps(row) + "\n" for row in rows))
    print(f"{len(rows)} tasks in {flags.out}")


async def _rows(environments: VerifiersEnvironments, first: int, count: int) -> list[dict[str, Any]]:
    try:
        return await environments.rows(first, count)
    finally:
        await environments.worker.close()


if __name__ == "__main__":
    main()
