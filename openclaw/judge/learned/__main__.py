"""Learn a judge from a rollout buffer: python -m openclaw.judge.learned --rl-buffer-dir DIR --output judge.json

Reads the votes that judges gave and what people said of them (the page's good and bad, /v1/feedback), and writes a file
for JUDGE_BACKEND=learned JUDGE_LEARNED_FILE=judge.json. Prints what it is worth on sessions that it was not fitted on,
with the rules beside it. Learn again whenever there is more to learn from.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import orjson

from openclaw.common.version import add_version
from openclaw.errors import ConfigError, StoreError
from openclaw.judge.learned.classifier import Example
from openclaw.judge.learned.examples import labelled_examples, stored_examples
from openclaw.judge.learned.judge_file import learn
from openclaw.settings import add_buffer_flags
from openclaw.store import RolloutStore

MOST = 4000
MOST_WRONG = 0.02


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m openclaw.judge.learned", description="Learns a judge from stored votes and feedback."
    )
    add_version(parser)
    add_buffer_flags(parser.add_mutually_exclusive_group())
    parser.add_argument(
        "--labelled", action="append", default=[], metavar="FILE",
        help='lines as python -m openclaw.judge reads them, with a "label" -1, 0 or 1; repeatable',
    )  # fmt: skip
    parser.add_argument("--output", required=True, metavar="FILE", help="where the judge is written")
    parser.add_argument("--most", type=int, default=MOST, help="newest judged turns that are read")
    parser.add_argument(
        "--most-wrong", type=float, default=MOST_WRONG,
        help="share of turns that may get the opposite sign, and share of those without a sign that may get one",
    )  # fmt: skip
    return parser


def run(args: argparse.Namespace) -> None:
    """Learns, writes and prints. Raises ConfigError and StoreError."""
    if args.most < 1 or not 0 <= args.most_wrong < 1:
        raise ConfigError("--most must be 1 or more, --most-wrong from 0 to below 1")
    buffer = args.rl_buffer_url or args.rl_buffer_dir
    if buffer is None and not args.labelled:
        raise ConfigError("name a rollout buffer (--rl-buffer-dir), labelled lines (--labelled), or both")
    examples: list[Example] = labelled_examples(args.labelled)
    if buffer is not None:
        store = RolloutStore(buffer)
        try:
            examples += stored_examples(store, args.most)
        finally:
            store.close()
    judge = learn(examples, args.most_wrong)
    _write(Path(args.output), judge.model_dump_json().encode())
    print(orjson.dumps({"judge": f"learned-{judge.digest}", **judge.measured}).decode())


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all: a judge worker may start meanwhile. Raises ConfigError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"--output {path}: {error.strerror or error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 written, 2 wrong configuration, store, or too little to learn from."""
    try:
        run(build_parser().parse_args(argv))
    except (ConfigError, StoreError) as error:
        print(f"openclaw.judge.learned: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
