"""Writes the batch of a recorded run as debug rollout data, with other settings of the hooks.

    bash lab/run.sh benchmarks.learning.recorded_batch --run RUN_DIR --rollout 5 \\
        --out batch/{rollout_id}.json dream_anchor_weight=0.5

The turns, dreams and anchors come from a copy of the run's buffer; nothing is sampled. One update can thus be trained
again without gateway, judge and gate, from the checkpoint before it (copy `checkpoint-N`, and a link
`checkpoint-latest` to it, into an empty --save folder):

    python slime/train_async.py --load-debug-rollout-data 'batch/{rollout_id}.json' --num-rollout 6 --save FOLDER ...

The last line on standard output is one JSON object: the number of rows by their case, and the measured shares.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from openclaw.store import RolloutStore
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.pipeline import Batch, BatchPipeline
from slime.replay import save
from slime.types import Sample


def changed(arguments: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Returns the run's arguments with changes such as "dream_rows=4". Raises SystemExit for an unknown name."""
    values = dict(arguments)
    for change in changes:
        name, _, text = change.partition("=")
        if name not in values:
            raise SystemExit(
                f"{change}: the run has no argument {name!r}; use the names of its arguments.json"
            )
        try:
            values[name] = json.loads(text)
        except json.JSONDecodeError:
            values[name] = text
    return values


def batch_of(run: Path, rollout_id: int, changes: Sequence[str], folder: Path) -> Batch:
    """Returns a batch of a run; `folder` receives a copy of its buffer."""
    buffer = folder / "buffer"
    shutil.copytree(run / "buffer", buffer)
    arguments = json.loads((run / "arguments.json").read_text("utf-8"))
    values = changed(arguments, changes) | {"rl_buffer_dir": str(buffer), "rl_buffer_url": None}
    with closing(sqlite3.connect(buffer / "buffer.db")) as database:
        rows = database.execute("SELECT id FROM sample WHERE rollout_id = ? ORDER BY id", (rollout_id,))
        ids = [id_ for (id_,) in rows]
    if not ids:
        raise SystemExit(f"{run} has no samples of rollout {rollout_id}")
    store = RolloutStore(str(buffer))
    pipeline = BatchPipeline(store, HookSettings.of(SimpleNamespace(**values)))
    return pipeline.prepare(store.samples.get(ids), rollout_id)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--run", type=Path, required=True, help="folder of the recorded run")
    options.add_argument("--rollout", type=int, required=True, help="number of the batch")
    options.add_argument("--out", required=True, help="file to write; {rollout_id} is replaced by the number")
    options.add_argument("changes", nargs="*", metavar="NAME=VALUE", help="arguments to change")
    return options


def main(argv: Sequence[str]) -> None:
    options = parser().parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        batch = batch_of(options.run, options.rollout, options.changes, Path(folder))
    save(options.out, options.rollout, [Sample.from_dict(row) for row in batch.rows])
    measured = batch.dream_batch
    print(
        json.dumps(
            {
                "rows": Counter(row["metadata"].get("case", "turn") for row in batch.rows),
                "learned": measured and measured.learned,
                "kept": measured and measured.kept,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
