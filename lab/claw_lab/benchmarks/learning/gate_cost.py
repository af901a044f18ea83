"""Reports the cost of the gate in a real run, from its metrics.jsonl.

`bash lab/run.sh benchmarks.learning.gate_cost RUN_DIR` prints one JSON line. `held_over_training`: the time for which
gate checks blocked the trainer, over the training time, of all updates; `held_median_s`: the same of one update.
`late_s`: mean delay of a version by the gate; candidates answer while the next batch trains. `training_beside_s`:
seconds of a training step that ran during a check, `training_s`: of any step. Questions after the switch delay
nothing; `bad_updates.py` measures their processor time.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

TRAINED, HELD, LOOKED, REJECTED = "perf/train_time", "gate/held", "gate/looked", "gate/rejected"
SECONDS = "gate/seconds"
Row = dict[str, float]


def cost(rows: Sequence[Row]) -> dict[str, float]:
    """Returns the costs from the rows of a metrics.jsonl; {} if the gate examined nothing."""
    examined = [row for row in rows if HELD in row and TRAINED in row]
    if not examined:
        return {}
    held, trained = ([row[name] for row in examined] for name in (HELD, TRAINED))
    live = [row for row in examined if not row.get(REJECTED)]
    batch_of_gate = [now[TRAINED] for before, now in pairwise(examined) if before.get(LOOKED)]
    return {
        "updates": len(examined),
        "rejected": len(examined) - len(live),
        "answered_before_live": sum(bool(row.get(LOOKED)) for row in examined),
        "training_s": statistics.fmean(trained),
        "training_beside_s": statistics.fmean(batch_of_gate) if batch_of_gate else 0.0,
        "held_median_s": statistics.median(held),
        "held_longest_s": max(held),
        "held_over_training": sum(held) / sum(trained),
        "late_s": statistics.fmean(row[SECONDS] for row in live) if live else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_dir", type=Path, help="folder of a run with --gate")
    args = parser.parse_args()
    lines = (args.run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    print(json.dumps({name: round(value, 3) for name, value in cost([json.loads(x) for x in lines]).items()}))


if __name__ == "__main__":
    main()
