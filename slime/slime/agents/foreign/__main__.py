"""Writes the tasks of somebody else's environment as rows for --prompt-data:

python -m slime.agents.foreign my_env.py:environments --count 500 --out train.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from slime.agents.foreign.verifiers import VerifiersEnvironments
from slime.errors import ConfigError, EnvironmentAway
from slime.plugins import load_attr


def main(argv: Sequence[str] | None = None) -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("environments", help="a VerifiersEnvironments: file.py:NAME")
    words.add_argument("--first", type=int, default=0, help="number of the first task")
    words.add_argument("--count", type=int, default=1000)
    words.add_argument("--out", type=Path, required=True)
    given = words.parse_args(argv)
    try:
        made = load_attr(given.environments)
        if not isinstance(made, VerifiersEnvironments):
            raise ConfigError(f"{given.environments} is a {type(made).__name__}, not VerifiersEnvironments")
        rows = asyncio.run(_rows(made, given.first, given.count))
    except (ConfigError, EnvironmentAway) as error:
        sys.exit(f"python -m slime.agents.foreign: {error}")
    write_text(given.out, "".join(json.dumps(row) + "\n" for row in rows))
    print(f"{len(rows)} tasks in {given.out}")


async def _rows(made: VerifiersEnvironments, first: int, count: int) -> list[dict[str, Any]]:
    try:
        return await made.rows(first, count)
    finally:
        await made.worker.close()


if __name__ == "__main__":
    main()
