"""Compares the loop in one process with a real one: repeats the judged turns and the updates of a run.

    PYTHONPATH=.:slime:openclaw-rl:openclaw-opd:openclaw-combine:openclaw-test python -m
        claw_lab.offline.replay RUN_DIR

reads buffer and arguments of a real run with the rules judge, and prints one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select

from claw_lab.offline.local_judge import LocalJudge
from openclaw.store import RolloutStore, schema
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.pipeline import BatchPipeline
from openclaw.trainer_hooks.rows import sample_dict
from openclaw.types import NewTurn, SampleRecord, Turn, TurnState
from slime.arguments import Arguments
from slime.arguments.record import read_arguments
from slime.errors import ConfigError
from slime.hooks import load_hook
from slime.rollout.post_process import post_processed
from slime.training.fsdp import FSDPTrainer
from slime.training.fsdp.model import gather_weights
from slime.types import Sample
from slime.weights.checksum import legacy_checksum, weights_checksum
from slime.weights.versions import is_legacy_checksum


@dataclass(frozen=True)
class Agreement:
    """Judged turns and live versions of the real run, and how many of each are reproduced here."""

    turns: int
    same_samples: int
    versions: int
    same_weights: int
    largest_log_prob_gap: float


def replay(run_dir: Path) -> Agreement:
    """Judges all judged turns again, and trains on all batches again, from the first weights.

    Raises:
        ConfigError: the folder has no arguments of a run, or its judge was not the rules.
    """
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        args = arguments_of(run_dir, folder)
        shutil.copytree(run_dir / "buffer", Path(folder) / "buffer")
        store = RolloutStore(Path(folder) / "buffer")
        try:
            turns = judged_turns(store)
            same = asyncio.run(judge_again(store, turns, args, Path(folder) / "again"))
            checksums, gap = train_again(store, args)
        finally:
            store.close()
    matched = sum(known == recomputed for known, recomputed in checksums)
    return Agreement(len(turns), same, len(checksums), matched, gap)


def arguments_of(run_dir: Path, folder: str) -> Any:
    """Returns the arguments of a run, for a trainer that writes to another folder."""
    known = read_arguments(run_dir)
    if known.get("judge_backend") not in (None, "rules"):
        raise ConfigError(f"{run_dir} was judged by {known['judge_backend']}; only rules judge twice alike")
    known |= {"run_dir": folder, "save": folder, "load": None, "rl_buffer_dir": str(Path(folder) / "buffer")}
    flags = {item.name for item in dataclasses.fields(Arguments)}
    args = Arguments(**{name: value for name, value in known.items() if name in flags})
    for name in known.keys() - flags:  # of the plug-ins
        setattr(args, name, known[name])
    return args


def judged_turns(store: RolloutStore) -> list[Turn]:
    with store.database.reading() as connection:
        query = select(schema.turn.c.id).where(schema.turn.c.state == str(TurnState.JUDGED))
        ids = list(connection.scalars(query.order_by(schema.turn.c.answered_at)))
    turns = [store.turns.get(turn_id) for turn_id in ids]
    return [turn for turn in turns if turn is not None]


async def judge_again(store: RolloutStore, turns: Sequence[Turn], args: Any, folder: Path) -> int:
    """Judges the turns again in a new store; returns how many become the same sample or the same drop."""
    names = [each.name for each in dataclasses.fields(NewTurn)]
    again = RolloutStore(folder)
    votes = max((len(one.votes) for turn in turns for one in store.judgements.of_turn(turn.id)), default=1)
    judge = LocalJudge(again, args.method_path, votes, args)
    try:
        for turn in turns:
            options = {name: getattr(turn, name) for name in names}
            again.turns.record(NewTurn(**{**options, "state": TurnState.CAPTURED, "state_reason": None}))
            again.turns.answer(turn.id, turn.next_state or [])
        await judge.judge_answered()
        pairs = [(store.samples.of_turn(turn.id), again.samples.of_turn(turn.id)) for turn in turns]
        return sum(what_is_trained(one) == what_is_trained(other) for one, other in pairs)
    finally:
        judge.close()
        again.close()


def what_is_trained(record: SampleRecord | None) -> dict[str, Any] | None:
    """Returns the training sample without the numbers assigned by a store; None for a turn without a sample."""
    if record is None or record.reason is not None:
        return None
    sample = sample_dict(record, 0)
    return {name: sample[name] for name in sample.keys() - {"index", "group_index"}}


def train_again(store: RolloutStore, args: Any) -> tuple[list[tuple[str | None, str]], float]:
    """Returns (checksum in the real run, checksum here) of every version, and the largest difference between the
    log-probs of the trainer and of the real run's engine in turns of one version."""
    trainer, pairs, gap = FSDPTrainer(args), [], 0.0
    pipeline = BatchPipeline(store, HookSettings.of(args))
    process = load_hook(args, "custom_reward_post_process_path")
    for version in sorted(store.versions.all(), key=lambda one: one.version):
        if version.rollout_id < 0:
            continue
        with store.database.reading() as connection:
            of_version = schema.sample.c.trained_version == version.version
            ids = list(connection.scalars(select(schema.sample.c.id).where(of_version)))
        if not ids:  # rejected, or not yet live when the run was stopped
            continue
        rows = pipeline.prepare(store.samples.get(sorted(ids)), version.rollout_id).rows
        samples = [Sample.from_dict(row) for row in rows]
        metrics = trainer.train(version.rollout_id, post_processed(args, samples, process, None))
        gap = max(gap, metrics.get("train_rollout_logprob_abs_diff_max", 0.0))
        checksum = legacy_checksum if is_legacy_checksum(version.checksum or "") else weights_checksum
        pairs.append((version.checksum, checksum(gather_weights(trainer.model, None, keep=True))))
        trainer.version = version.version
    return pairs, gap


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run_dir", type=Path, help="run folder of an ended loop")
    options = parser.parse_args(argv)
    try:
        counts = replay(options.run_dir)
    except ConfigError as error:
        sys.exit(f"error: {error}")
    print(json.dumps(dataclasses.asdict(counts)))


if __name__ == "__main__":
    main()
