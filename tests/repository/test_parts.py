"""The quick tests, and the order of tests in several processes."""

from __future__ import annotations

from itertools import chain

import pytest

from tests import ROOT, parts

TESTS = ROOT / "tests"


@pytest.mark.parametrize("name", [*parts.QUICK, *parts.WHOLE, *parts.LONG, *chain(*parts.TOGETHER)])
def test_every_entry_names_a_file_or_folder(name: str) -> None:
    assert (TESTS / name).is_dir() if name.endswith("/") else (TESTS / name).is_file()


def test_full_runs_start_first_then_long_files_then_others() -> None:
    names = [
        "slime/test_types.py",
        "lab/long/test_gpu_check.py",
        "repository/test_style.py",
        "system/test_loop.py",
    ]
    assert sorted(names, key=lambda name: parts.rank(TESTS / name)) == names[::-1]
    assert parts.rank(ROOT / "elsewhere.py") == parts.rank(TESTS / "slime/test_types.py")


def test_tests_that_share_a_trainer_process_are_in_one_queue() -> None:
    queues = [
        parts.queue(TESTS / name)
        for name in ("slime/training/core/test_objects.py", "slime/vision/test_ranks.py")
    ]
    assert queues[0] == queues[1] != parts.queue(TESTS / "slime/vision/test_trainer.py")


def test_whole_loops_and_training_runs_are_in_two_queues() -> None:
    loops, again, runs, more = (
        parts.queue(TESTS / name)
        for name in (
            "system/test_loop.py",
            "lab/e2e/test_scenario.py",
            "slime/test_training_run.py",
            "slime/ray/test_stop.py",
        )
    )
    assert loops == again != runs == more
