"""Fits a judge to a rollout buffer: python -m openclaw.judge.learned --rl-buffer-dir DIR --output judge.json

Reads the votes of judges and people's ratings (good and bad on the page, /v1/feedback), and writes a file for
JUDGE_BACKEND=learned JUDGE_LEARNED_FILE=judge.json. Prints its accuracy on sessions that it was not fitted to, next to
that of the rules. Run it again when the buffer has more ratings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from claw_base.files import write_bytes
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, check, flag
from openclaw.common.version import VERSION
from openclaw.errors import ConfigError, StoreError
from openclaw.judge.learned.classifier import Example
from openclaw.judge.learned.examples import labelled_examples, stored_examples
from openclaw.judge.learned.judge_file import learn
from openclaw.store import RolloutStore

PROGRAM = "python -m openclaw.judge.learned"
MOST = 4000
MOST_WRONG = 0.02


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The examples that a judge is fitted to, and the file to write."""

    rl_buffer_dir: str | None = flag(None, "folder of the rollout buffer", unit="path")
    rl_buffer_url: str | None = flag(None, "SQLAlchemy URL of the rollout buffer, instead", unit="URL")
    labelled: tuple[str, ...] = flag(
        (),
        'lines as python -m openclaw.judge reads them, with a "label" -1, 0 or 1; repeatable',
        unit="file",
    )
    output: str = flag(REQUIRED, "where the judge is written", unit="file")
    most: int = flag(MOST, "newest judged turns that are read", least=1)
    most_wrong: float = flag(
        MOST_WRONG,
        "largest share of turns with a flipped sign, and of neutral turns that gain a sign",
        least=0,
        below=1,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.rl_buffer_dir and self.rl_buffer_url:
            raise ConfigError("--rl-buffer-dir and --rl-buffer-url contradict: give one of them")
        if not (self.rl_buffer_dir or self.rl_buffer_url or self.labelled):
            raise ConfigError("name a rollout buffer (--rl-buffer-dir), labelled lines (--labelled), or both")


def run(args: Learning) -> None:
    """Learns, writes and prints. Raises ConfigError and StoreError."""
    buffer = args.rl_buffer_url or args.rl_buffer_dir
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
    try:
        write_bytes(path, data)
    except OSError as error:
        raise ConfigError(f"--output {path}: {error.strerror or error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 written, 2 wrong configuration, store, or too little to learn from."""
    try:
        run(parse(Learning, argv, PROGRAM, "Learns a judge from stored votes and feedback.", VERSION))
    except (ConfigError, StoreError) as error:
        print(f"openclaw.judge.learned: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
