"""The trainer's side of the rollout buffer: lease a batch, commit it once its weights are live.

No trainer framework is imported: a batch is a list of dictionaries with the framework's own sample fields,
and the arguments are any object with the attributes of `add_arguments` plus `rollout_batch_size`.
"""

from __future__ import annotations

import argparse
import functools
import logging
import time
from pathlib import Path
from typing import Any

from claw_base.settings.command_line import text_of_variable
from openclaw.errors import StoreAway, StoreError
from openclaw.settings import Settings, add_buffer_flags
from openclaw.store import RolloutStore
from openclaw.store.shares import Person
from openclaw.trainer_hooks import companions, next_states, probation, standing, trust
from openclaw.trainer_hooks.backlog import Backlog, BacklogWatch
from openclaw.trainer_hooks.batch import batch_metrics, batch_rows, sample_dict, trainer_of
from openclaw.types import DEFAULT_TRAINER, SampleRecord

log = logging.getLogger("openclaw.trainer_hooks.lease")

POLL_SECONDS = 0.15
AWAY_SECONDS = 1.0
"""Between two looks whether the database server is back."""
EXPIRE_EVERY_SECONDS = 3.0
PURGE_EVERY_SECONDS = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the rollout buffer, once: hooks of several modules bring them."""
    if parser.get_default("batch_timeout") is not None:
        return
    group = parser.add_argument_group("rollout buffer", "Where conversations become training batches.")
    add_buffer_flags(group)
    group.add_argument(
        "--batch-timeout",
        type=_seconds,
        default=30.0,
        help="seconds after which a batch that is not full goes too, counted from its oldest sample",
    )
    group.add_argument(
        "--catch-up-batch-size",
        type=int,
        default=0,
        help="when people say more than is trained, a batch takes up to so many samples, so that it does not learn from "
        "ever older talk; 0: never more than --rollout-batch-size",
    )
    group.add_argument(
        "--session-ttl",
        type=_seconds,
        default=text_of_variable(Settings, "session_ttl") or Settings.session_ttl,
        help="idle seconds after which a conversation has ended",
    )
    group.add_argument(
        "--retention-days",
        type=_days,
        default=0.0,
        help="days after which turns that are trained, dropped or ended are deleted; 0 keeps them",
    )
    group.add_argument(
        "--max-person-share",
        type=_part,
        default=0.75,
        help="of what is learned within an hour, the part that one person may give where several teach; the rest of "
        "their turns wait. 1: no bound",
    )
    probation.add_arguments(parser)
    group.add_argument(
        "--trainer-id",
        default=DEFAULT_TRAINER,
        help="name of this trainer's leases and versions; two trainers on one buffer need two names",
    )
    companions.add_arguments(parser)
    standing.add_arguments(parser)
    trust.add_arguments(parser)
    next_states.add_arguments(parser)


def lease_batch(args: Any, rollout_id: int) -> list[dict[str, Any]]:
    """Blocks until a batch can go, and returns it: one dictionary a sample, at least one. See `lease_records`."""
    return [sample_dict(record, rollout_id) for record in lease_records(args, rollout_id)]


def lease_records(args: Any, rollout_id: int) -> list[SampleRecord]:
    """Blocks until a batch can go, and returns it, at least one sample.

    A full batch (`args.rollout_batch_size`, or up to `args.catch_up_batch_size` where so many wait) goes at once; a
    smaller one `args.batch_timeout` seconds after its oldest sample became ready. With `args.max_staleness`, samples
    that only older weights wrote are dropped and counted as `stale`, unless `args.stale_weight` lets them train. The
    same `rollout_id` gets the same samples again. Meanwhile sessions idle for more than `args.session_ttl` seconds
    are ended, and turns older than `args.retention_days` deleted. A database server that is away is waited for. With
    `args.trust`, samples of people who are not trusted are passed over, as if they were not there.

    Raises:
        StoreError: the buffer cannot be used, or this rollout is trained already.
    """
    store = opened_store(args)
    while True:
        try:
            records = _lease_if_due(store, args, rollout_id)
        except StoreAway as error:
            log.warning("the next batch waits: %s", error)
            time.sleep(AWAY_SECONDS)
            continue
        if records:
            _tell_backlog(store, args)
            return records
        time.sleep(POLL_SECONDS)


def _lease_if_due(store: RolloutStore, args: Any, rollout_id: int) -> list[SampleRecord]:
    """The batch; empty while none can go."""
    _keep_house(store, args)
    _drop_stale(store, args)
    apart = trust.held_back(args, store)
    if store.samples.has_lease(rollout_id, trainer_of(args)) or _due(store, args, apart):
        size = _batch_size(store, args, apart)
        return store.samples.lease(rollout_id, size, trainer_of(args), _share(args), apart)
    return []


def lease_full(args: Any, store: RolloutStore, rollout_id: int) -> list[SampleRecord]:
    """The batch if it is full now; empty otherwise. For loops that wait for nothing."""
    apart = trust.held_back(args, store)
    if (
        store.samples.leasable_count(args.rollout_batch_size, trainer_of(args), _share(args), apart)
        < args.rollout_batch_size
    ):
        return []
    return store.samples.lease(rollout_id, args.rollout_batch_size, trainer_of(args), _share(args), apart)


def on_weights_live(args: object, rollout_id: int, version: int, checkpoint: dict[str, Any]) -> None:
    """For --on-weights-live-path: every engine serves `version`, so its batch is trained, for good.

    Args:
        checkpoint: `path`, `parent` (int or None), `checksum`, `restored` (the trainer has just started
        from these weights; see `VersionTable.weights_live`); of an update also `metrics` and `measurements`; `undo`
        (`drop_turns`, `reason`) where an older version is gone back to.

    Raises:
        StoreError: the version number was used for something else.
    """
    if (undo := checkpoint.get("undo")) is not None:
        opened_store(args).versions.roll_back(version, undo["drop_turns"], undo["reason"], trainer_of(args))
        return
    opened_store(args).versions.weights_live(
        rollout_id,
        version,
        parent=checkpoint["parent"],
        restored=bool(checkpoint["restored"]),
        checkpoint_path=checkpoint["path"],
        checksum=checkpoint["checksum"],
        trainer=trainer_of(args),
        details={name: told for name in ("metrics", "measurements") if (told := checkpoint.get(name))},
    )
    _take_token_records(args)


def generate_rollout(
    args: object, rollout_id: int, data_source: object = None, evaluation: bool = False
) -> dict[str, Any]:
    """For --rollout-function-path: a batch as `lease_batch` gives it, and metrics about it.

    Nobody's answer waits for it. Each turn is a group of its own.

    Args:
        data_source: not looked at; the batch comes from the buffer.

    Returns:
        `samples`, one dictionary each, behind them those of `companions`, and `metrics`.

    Raises:
        ValueError: an evaluation is asked for; conversations have no evaluation set.
        StoreError: as `lease_records`.
    """
    if evaluation:
        raise ValueError("conversations are no evaluation set: talk to the model with openclaw-test/ instead")
    rows = batch_rows(args, opened_store(args), lease_records(args, rollout_id), rollout_id)
    return {"samples": rows, "metrics": batch_metrics(rows) | trust.trust_metrics(args, opened_store(args))}


def _keep_house(store: RolloutStore, args: Any) -> None:
    """Ends idle sessions and deletes old turns, each when it is time again."""
    done, now = _housekeeping(store), time.monotonic()
    if now >= done.get("expiry", now):
        store.sessions.expire(args.session_ttl)
        probation.watch(args, store)
        done["expiry"] = now + EXPIRE_EVERY_SECONDS
    if args.retention_days and now >= done.get("purge", now):
        deleted = store.deletion.purge(args.retention_days)
        done["purge"] = now + PURGE_EVERY_SECONDS
        if deleted["turns"]:
            log.info("retention deleted turns=%d samples=%d", deleted["turns"], deleted["samples"])


def _drop_stale(store: RolloutStore, args: object) -> None:
    """Looks again when another version is live or another sample is ready."""
    most = getattr(args, "max_staleness", None)
    weight: float = getattr(args, "stale_weight", 0.0)
    if most is None or weight > 0:
        return
    done, now = _housekeeping(store), (store.versions.live(), store.samples.ready_count())
    if now != (done.get("live"), done.get("ready")):
        dropped = store.samples.drop_stale(now[0] - most)
        done |= {"live": now[0], "ready": now[1] - dropped}
        if dropped:
            log.info("stale samples dropped samples=%d live_version=%d", dropped, now[0])


@functools.lru_cache(maxsize=4)
def _housekeeping(store: RolloutStore) -> dict[str, float]:
    """What is due next, and when (time.monotonic); for which version and how many samples stale ones were sought."""
    return {}


def _take_token_records(args: Any) -> None:
    """What the trainer wrote of every token, where it does; an update never fails for them."""
    run_dir = getattr(args, "run_dir", None)
    if run_dir:
        try:
            opened_store(args).token_records.take(Path(run_dir))
        except StoreError as error:
            log.warning("token records were not taken: %s", error)


def _tell_backlog(store: RolloutStore, args: Any) -> None:
    """Once a batch: who does not keep up, and which flag changes it."""
    ready = store.samples.ready_count(trust.held_back(args, store))
    backlog = Backlog(ready, store.judgements.answered_count(), args.rollout_batch_size)
    for line in _backlog_watch(store).news(backlog):
        log.warning("%s", line)


@functools.lru_cache(maxsize=4)
def _backlog_watch(store: RolloutStore) -> BacklogWatch:
    return BacklogWatch()


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds


def _part(text: str) -> float:
    part = float(text)
    if not 0 < part <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no part: above 0, at most 1")
    return part


def _share(args: Any) -> float:
    return float(getattr(args, "max_person_share", 1.0))


def _days(text: str) -> float:
    days = float(text)
    if not 0 <= days < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of days: 0 or more")
    return days


def _batch_size(store: RolloutStore, args: Any, apart: frozenset[Person]) -> int:
    usual = int(args.rollout_batch_size)
    return max(usual, min(store.samples.ready_count(apart), getattr(args, "catch_up_batch_size", 0)))


def _due(store: RolloutStore, args: Any, apart: frozenset[Person]) -> bool:
    ready, share = store.samples.ready_count(apart), _share(args)
    if ready and share < 1:
        ready = store.samples.leasable_count(args.rollout_batch_size, trainer_of(args), share, apart)
    if ready >= args.rollout_batch_size:
        return True
    oldest = store.samples.oldest_ready_at(apart) if ready else None
    return oldest is not None and abs(time.time() - oldest) >= args.batch_timeout  # the clock may be set back


def opened_store(args: Any) -> RolloutStore:
    """The rollout buffer of the flags, opened once a process. Raises StoreError."""
    return _open(args.rl_buffer_url or args.rl_buffer_dir)


@functools.lru_cache(maxsize=4)
def _open(location: str | None) -> RolloutStore:
    if not location:
        raise StoreError("no rollout buffer: give --rl-buffer-dir or --rl-buffer-url")
    return RolloutStore(location)
