"""Prepares data files for a run:

python -m toolcall_rl.data problems dapo-math-17k.parquet --out problems.jsonl --without aime-2024.jsonl
python -m toolcall_rl.data sft ReTool-SFT.parquet --out retool_sft.jsonl
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from claw_base.files import write_text
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import ConfigError, DataError
from toolcall_rl.data.conversations import conversations
from toolcall_rl.data.problems import Kept, problem_of, problems, read_rows


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The files to prepare, and their format."""

    kind: str = flag(REQUIRED, "kind of output", choices=("problems", "sft"), positional=True)
    files: list[str] = flag(REQUIRED, "JSON Lines or Parquet; FILE@[0:100] selects rows", positional=True)
    out: Path = flag(REQUIRED, "output file, JSON Lines")
    without: list[str] = flag([], "files whose problems are excluded")


def main() -> int:
    args = parse(Prepared, None, "python -m toolcall_rl.data", __doc__)
    try:
        kept = _kept(args)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(args.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept.rows))
    left = "".join(f", {count} {why}" for why, count in kept.left_out.items())
    print(f"{len(kept.rows)} rows in {args.out}{left}")
    return 0


def _kept(args: Prepared) -> Kept:
    if args.kind == "sft":
        return conversations(read_rows(args.files))
    held_out = [problem_of(where, row) for where, row in read_rows(args.without)]
    return problems(read_rows(args.files), held_out)


if __name__ == "__main__":
    sys.exit(main())
