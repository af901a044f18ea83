"""Prepares files for a run:

python -m toolcall_rl.data problems dapo-math-17k.parquet --out problems.jsonl --without aime-2024.jsonl
python -m toolcall_rl.data sft ReTool-SFT.parquet --out retool_sft.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from claw_base.files import write_text
from slime.errors import ConfigError, DataError
from toolcall_rl.data.conversations import conversations
from toolcall_rl.data.problems import Kept, problem_of, problems, read_rows


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m toolcall_rl.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=("problems", "sft"))
    parser.add_argument("files", nargs="+", help="JSON Lines or Parquet; FILE@[0:100] takes a part")
    parser.add_argument("--out", type=Path, required=True, help="JSON Lines")
    parser.add_argument("--without", nargs="*", default=[], help="files whose problems must not come")
    args = parser.parse_args()
    try:
        found = _kept(args)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_text(args.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found.rows))
    left = "".join(f", {count} {why}" for why, count in found.left_out.items())
    print(f"{len(found.rows)} rows in {args.out}{left}")
    return 0


def _kept(args: argparse.Namespace) -> Kept:
    if args.kind == "sft":
        return conversations(read_rows(args.files))
    held_out = [problem_of(where, row) for where, row in read_rows(args.without)]
    return problems(read_rows(args.files), held_out)


if __name__ == "__main__":
    sys.exit(main())
