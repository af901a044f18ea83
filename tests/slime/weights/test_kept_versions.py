"""Tests which versions stay on disk, and users' orders about them."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

from claw_base.run_folder import orders as asked
from claw_base.run_folder.orders import VersionOrders
from slime.arguments import Arguments
from slime.ray.versions.files import VersionFiles
from slime.weights.kept import keep_versions, versions_to_keep
from slime.weights.versions import WeightVersion


def test_the_newest_versions_are_kept_and_older_ones_thinned() -> None:
    kept: list[int] = []
    for version in range(101):  # as a run does
        kept = versions_to_keep([*kept, version], 10)
    assert kept[0] == 0 and kept[-5:] == [96, 97, 98, 99, 100] and len(kept) == 11
    gaps = [later - earlier for earlier, later in itertools.pairwise(kept)]
    assert gaps[1] > 10 and gaps[-6] < 10, "the older, the farther apart"
    assert versions_to_keep([0, 1, 2], 10) == [0, 1, 2]


def test_the_first_and_the_named_versions_are_always_kept() -> None:
    assert {0, 37} <= set(versions_to_keep(range(101), 4, named={37}))


def write_versions(save: Path, weights: Path) -> None:
    """Writes 30 versions, of which the twelfth is the latest checkpoint."""
    for number in range(30):
        folder = save / f"checkpoint-{number}"
        folder.mkdir(parents=True)
        meta = {"rollout_id": number - 1, "global_step": number, "version": number, "parent": number - 1}
        (folder / "meta.json").write_text(json.dumps(meta))
        (weights / f"v{number:06d}").mkdir(parents=True)
    (save / "checkpoint-latest").symlink_to("checkpoint-12")


def test_checkpoints_and_artifacts_of_other_versions_are_removed(tmp_path: Path) -> None:
    save, weights = tmp_path / "checkpoints", tmp_path / "weights"
    write_versions(save, weights)
    left = keep_versions(save, weights, 6, named={7}, recent=2)
    assert {0, 7, 12, 27, 28, 29} <= set(left) and len(left) <= 9
    assert sorted(int(path.name[11:]) for path in save.glob("checkpoint-[0-9]*")) == left
    assert {int(path.name[1:]) for path in weights.glob("v*")} >= set(left)


def test_live_pinned_and_known_good_versions_are_kept_at_any_age(tmp_path: Path) -> None:
    save, weights = tmp_path / "checkpoints", tmp_path / "weights"
    write_versions(save, weights)
    args = Arguments(
        run_dir=str(tmp_path), save=str(save), update_weight_disk_dir=str(weights), keep_versions=4,
        keep_checkpoints=1, keep_weights=1,
    )  # fmt: skip
    VersionFiles(args, list).tidy(WeightVersion(29, str(weights / "v000029"), ""), 5, 9, None)
    there = {int(path.name[11:]) for path in save.glob("checkpoint-[0-9]*")}
    assert {5, 9, 29} <= there and len(there) < 12
    assert all((weights / f"v{number:06d}").is_dir() for number in (5, 9, 29))


def test_an_order_reaches_the_driver_and_its_answer_comes_back(tmp_path: Path) -> None:
    order_id = asked.place(tmp_path, "rollback", 3, drop_turns=True, reason="by hand")
    driver = VersionOrders(tmp_path)
    order = driver.next()
    assert order is not None and driver.next() == order, "until it is done it is found again"
    assert (order.id, order.action, order.version, order.drop_turns) == (order_id, "rollback", 3, True)
    assert asyncio.run(asked.wait_for(tmp_path, order_id, 0.1)) is None
    driver.finish(order, pinned=None, seconds=0.5)
    assert driver.next() is None
    assert asyncio.run(asked.wait_for(tmp_path, order_id, 1.0)) == {
        "id": order_id,
        "error": None,
        "seconds": 0.5,
    }
    driver.finish(order, pinned=3)
    assert asked.pinned(tmp_path) == driver.pinned == 3


def test_an_unreadable_order_does_not_stop_the_driver(tmp_path: Path) -> None:
    (tmp_path / "version_order.json").write_text("{")
    assert VersionOrders(tmp_path).next() is None and not (tmp_path / "version_order.json").exists()
