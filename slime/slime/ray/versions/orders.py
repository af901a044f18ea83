"""Carries out orders for another version (rollback, pin, unpin) at once, while requests continue."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from claw_base.run_folder.orders import VersionOrder, VersionOrders
from slime.errors import CheckpointError, ConfigError, EngineError
from slime.ray.train_group import TrainGroup
from slime.ray.versions.publisher import Publisher
from slime.weights.checkpoints import make_latest, read_meta
from slime.weights.kept import versions_with_checkpoint
from slime.weights.update import Candidate
from slime.weights.versions import WeightVersion, artifact_folder

logger = logging.getLogger(__name__)


def execute_order(publisher: Publisher, trainers: TrainGroup, rollout_id: int) -> bool:
    """Carries out the pending order, if there is one. If that is impossible, the reason is the answer to the order.

    Args:
        rollout_id: the last one that was trained.

    Returns:
        Whether the trained policy has changed.
    """
    publisher.gate.watch()
    orders, began = publisher.orders, time.monotonic()
    order = orders.next()
    if order is None:
        return False
    try:
        pinned = _execute(order, publisher, trainers, rollout_id)
    except (ConfigError, CheckpointError, EngineError) as error:
        logger.warning("the order %s %s is rejected: %s", order.action, order.version, error)
        publisher.gate.miss(order.version)
        orders.finish(order, orders.pinned, str(error), time.monotonic() - began)
        return False
    seconds = time.monotonic() - began
    orders.finish(order, pinned, None, seconds)
    logger.info("order done: %s %s in %.2f s", order.action, order.version, seconds)
    return order.action == "rollback"


def _execute(order: VersionOrder, publisher: Publisher, trainers: TrainGroup, rollout_id: int) -> int | None:
    """Carries out an order; returns the version that is pinned afterwards."""
    if order.action == "rollback" and order.version is not None:
        go_back(order, publisher, trainers, rollout_id)
        return None
    if order.action == "pin" and order.version is not None:
        serve(publisher, _weights(publisher, order.version)[0])
        return order.version
    if order.action == "unpin":
        serve(publisher, publisher.live)
        return None
    raise ConfigError(f"{order.action} {order.version} is not a valid order; use rollback N, pin N or unpin")


def left_over(orders: VersionOrders) -> str | None:
    """Returns a log line about an order from before this start, or None."""
    order = orders.waiting()
    if order is None:
        return None
    reason = f" ({order.reason})" if order.reason else ""
    what = order.action if order.version is None else f"{order.action} {order.version}"
    return f"an order from before this start is carried out now: {what}{reason}"


def repin(publisher: Publisher) -> None:
    """Serves the pinned version again after a restart, if its files exist; the trainer's own version was live for a
    moment before."""
    pinned = publisher.orders.pinned
    if pinned is None or pinned == publisher.live.version:
        return
    try:
        serve(publisher, _weights(publisher, pinned)[0])
    except (ConfigError, EngineError) as error:
        logger.warning("version %d is not served although it is pinned: %s", pinned, error)


def serve(publisher: Publisher, weights: WeightVersion) -> None:
    """Serves a version without changing the policy that is trained."""
    publisher.switch(Candidate(weights, -1, None, silent=True))


def go_back(order: VersionOrder, publisher: Publisher, trainers: TrainGroup, rollout_id: int) -> None:
    """Rolls back engines first, then store, checkpoint and trainer. After a kill in between, the order is found and
    carried out again."""
    assert order.version is not None
    weights, checkpoint = _weights(publisher, order.version)
    parent = read_meta(checkpoint)["parent"]
    undo = {"drop_turns": order.drop_turns, "reason": order.reason}
    publisher.orders.going_back(rollout_id)
    publisher.switch(Candidate(weights, rollout_id, parent, undo=undo))
    publisher.return_to(weights, parent)
    trainers.finish_save()
    make_latest(checkpoint)
    trainers.return_to(checkpoint)
    publisher.gate.begin(trainers, rollout_id, weights)


def _weights(publisher: Publisher, version: int) -> tuple[WeightVersion, Path]:
    """Returns a version that is still on disk, and its checkpoint. Raises ConfigError that lists the versions on
    disk."""
    kept = versions_with_checkpoint(publisher.save_dir)
    checkpoint, folder = kept.get(version), artifact_folder(publisher.files.weights_dir, version)
    if checkpoint is None or not folder.is_dir() or str(version) not in publisher.files.checksums():
        available = ", ".join(str(one) for one in sorted(kept)) or "none"
        raise ConfigError(
            f"version {version} is no longer on disk; available: {available} (a larger --keep-versions keeps more)"
        )
    return WeightVersion(version, str(folder), publisher.files.checksums()[str(version)]), checkpoint
