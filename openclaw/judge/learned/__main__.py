"""Adapts the sentence model's head to a person: python -m openclaw.judge.learned --rl-buffer-dir DIR --output head.npz

Reads people's ratings (good and bad on the page, /v1/feedback) and votes of judge models, and writes a file for
JUDGE_EMBEDDINGS=on JUDGE_HEAD=head.npz. Prints its accuracy on held-out sessions, next to that of the shipped head.
Run it again when the buffer has more ratings.
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
from openclaw.judge.learned.adapting import change, measured
from openclaw.judge.learned.examples import labelled_examples, stored_examples
from openclaw.judge.sentences.encoder import NEEDS, Encoder, is_installed
from openclaw.judge.sentences.features import features_of, form_features_of
from openclaw.judge.sentences.head import Head
from openclaw.store import RolloutStore

PROGRAM = "python -m openclaw.judge.learned"
MOST = 4000


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The examples that a judge is fitted to, and the file to write."""

    rl_buffer_dir: str | None = flag(None, "folder of the rollout buffer", unit="path")
    rl_buffer_url: str | None = flag(
        None, "SQLAlchemy URL of the rollout buffer, instead of the folder", unit="URL"
    )
    labelled: tuple[str, ...] = flag(
        (),
        'lines in the format of python -m openclaw.judge, with a "label" -1, 0 or 1; repeatable',
        unit="file",
    )
    output: str = flag(REQUIRED, "output file of the head", unit="file")
    most: int = flag(MOST, "number of newest judged turns to read", least=1)

    def __post_init__(self) -> None:
        check(self)
        if self.rl_buffer_dir and self.rl_buffer_url:
            raise ConfigError("--rl-buffer-dir and --rl-buffer-url contradict: give one of them")
        if not (self.rl_buffer_dir or self.rl_buffer_url or self.labelled):
            raise ConfigError("give a rollout buffer (--rl-buffer-dir), labelled lines (--labelled), or both")


def run(args: Learning) -> None:
    """Adapts the head, writes and prints the result. Raises ConfigError and StoreError."""
    import numpy as np

    if not is_installed():
        raise ConfigError(f"the sentence model is missing: {NEEDS}")
    buffer = args.rl_buffer_url or args.rl_buffer_dir
    examples = labelled_examples(args.labelled)
    if buffer is not None:
        store = RolloutStore(buffer)
        try:
            examples += stored_examples(store, args.most)
        finally:
            store.close()
    encoder = Encoder()
    head = Head(encoder)
    rows = [features_of(one.remark, encoder) for one in examples]
    of_form = [form_features_of(row, one.remark, encoder) for row, one in zip(rows, examples, strict=True)]
    features, form_features = (
        np.stack(some) if some else np.zeros((0, 1), dtype=np.float32) for some in (rows, of_form)
    )
    measurements = measured(head, features, form_features, examples)
    content = head.changed(change(features, head.powers(features), examples), measurements)
    try:
        # atomic, because a judge worker may start meanwhile; its weights are made of people's words
        write_bytes(Path(args.output), content, 0o600)
    except OSError as error:
        raise ConfigError(f"--output {args.output}: {error.strerror or error}") from error
    print(orjson.dumps(measurements).decode())


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 written, 2 invalid configuration or store, or too few ratings."""
    try:
        run(
            parse(
                Learning,
                argv,
                PROGRAM,
                "Adapts the head of the sentence model to a person's ratings.",
                VERSION,
            )
        )
    except (ConfigError, StoreError) as error:
        print(f"openclaw.judge.learned: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
