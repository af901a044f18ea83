"""Does the loop in one process do what the real one does? Its judged turns and its updates, done once more.

    PYTHONPATH=.:slime:openclaw-rl:openclaw-opd:openclaw-combine:openclaw-test python -m learning.replay RUN_DIR

reads the buffer of a real run (of `run_tiny_openclaw_rl.sh`, unless --method says another) and prints one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from learning.local_judge import LocalJudge
from learning.methods import METHODS, Setting
from openclaw.records import NewTurn, SampleRecord, Turn, TurnState
from openclaw.rollout import sample_dict
from openclaw.store import RolloutStore, schema
from slime.arguments import parse_args
from slime.backends.fsdp import FSDPTrainer
from slime.backends.fsdp.model import gather_weights
from slime.types import Sample
from slime.utils.checksum import weights_checksum

MODEL = Path(__file__).resolve().parents[1] / "tiny_claw" / "model"


@dataclass(frozen=True)
class Agreement:
    """Judged turns and live versions of the real run, and how many of each came out the same here."""

    turns: int
    same_samples: int
    versions: int
    same_weights: int
    largest_log_prob_gap: float


def replay(run_dir: Path, setting: Setting, model: Path = MODEL) -> Agreement:
    """Judges every judged turn again, and trains on every batch again, from the first weights."""
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        shutil.copytree(run_dir / "buffer", Path(folder) / "buffer")
        args = parse_args(setting.flags(str(model), folder, seed=1234), env={})
        store = RolloutStore(Path(folder) / "buffer")
        try:
            turns = judged_turns(store)
            same = asyncio.run(judge_again(store, turns, setting, args, Path(folder) / "again"))
            checksums, gap = train_again(store, args)
        finally:
            store.close()
    matched = sum(known == found for known, found in checksums)
    return Agreement(len(turns), same, len(checksums), matched, gap)


def judged_turns(store: RolloutStore) -> list[Turn]:
    with store.reading() as connection:
        query = select(schema.turn.c.id).where(schema.turn.c.state == str(TurnState.JUDGED))
        ids = list(connection.scalars(query.order_by(schema.turn.c.answered_at)))
    found = [store.get_turn(turn_id) for turn_id in ids]
    return [turn for turn in found if turn is not None]


async def judge_again(
    store: RolloutStore, turns: Sequence[Turn], setting: Setting, args: Any, folder: Path
) -> int:
    """How many turns become the same sample, or the same drop, in a store of their own."""
    names = [each.name for each in dataclasses.fields(NewTurn)]
    again = RolloutStore(folder)
    judge = LocalJudge(again, setting, args)
    try:
        for turn in turns:
            given = {name: getattr(turn, name) for name in names}
            again.record_turn(NewTurn(**{**given, "state": TurnState.CAPTURED, "state_reason": None}))
            again.answer_turn(turn.id, turn.next_state or [])
        await judge.judge_answered()
        pairs = [(store.sample_of_turn(turn.id), again.sample_of_turn(turn.id)) for turn in turns]
        return sum(what_is_trained(one) == what_is_trained(other) for one, other in pairs)
    finally:
        judge.close()
        again.close()


def what_is_trained(record: SampleRecord | None) -> dict[str, Any] | None:
    """The training sample without the numbers that a store gives out; None for a turn that gave none."""
    if record is None or record.reason is not None:
        return None
    found = sample_dict(record, 0)
    return {name: found[name] for name in found.keys() - {"index", "group_index"}}


def train_again(store: RolloutStore, args: Any) -> tuple[list[tuple[str | None, str]], float]:
    """(checksum in the real run, checksum here) of every version, and the largest gap between the log-probs of the
    trainer and of the real run's engine in turns of one version."""
    trainer, pairs, gap = FSDPTrainer(args), [], 0.0
    for version in sorted(store.versions(), key=lambda one: one.version):
        if version.rollout_id < 0:
            continue
        with store.reading() as connection:
            mine = schema.sample.c.trained_version == version.version
            ids = list(connection.scalars(select(schema.sample.c.id).where(mine)))
        samples = [
            Sample.from_dict(sample_dict(one, version.rollout_id)) for one in store.samples(sorted(ids))
        ]
        metrics = trainer.train(version.rollout_id, samples)
        gap = max(gap, metrics.get("train_rollout_logprob_abs_diff_max", 0.0))
        pairs.append((version.checksum, weights_checksum(gather_weights(trainer.model, None, keep=True))))
        trainer.version = version.version
    return pairs, gap


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_dir", type=Path, help="run folder of a loop that has ended")
    parser.add_argument("--method", choices=METHODS, default="binary_rl")
    parser.add_argument("--lr", type=float, default=5e-4, help="learning rate of the run")
    parser.add_argument("--kl", type=float, default=0.05, help="weight of its KL term")
    options = parser.parse_args(argv)
    setting = Setting(METHODS[options.method], lr=options.lr, kl=options.kl, adam_eps=1e-8, per_token=False)
    print(json.dumps(dataclasses.asdict(replay(options.run_dir, setting))))


if __name__ == "__main__":
    main()
