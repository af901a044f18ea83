"""The quick tests, and the distribution of tests over processes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import ROOT

QUICK = (
    "methods/test_samples.py",
    "openclaw/chat/test_terminal.py",
    "openclaw/clients/",
    "openclaw/common/",
    "openclaw/engine/",
    "openclaw/formats/",
    "openclaw/judge/",
    "openclaw/methods/",
    "openclaw/store/",
    "openclaw/test_settings.py",
    "openclaw/trainer_hooks/",
    "openclaw_test/test_detectors.py",
    "openclaw_test/test_problems.py",
    "openclaw_test/test_scripted_user.py",
    "openclaw_test/test_tastes.py",
    "repository/test_arrows.py",
    "repository/test_environment.py",
    "repository/test_names.py",
    "slime/arguments/",
    "slime/gate/test_files.py",
    "slime/gate/test_gate.py",
    "slime/gate/test_measures.py",
    "slime/hooks/test_contracts.py",
    "slime/losses/",
    "slime/rewards/test_reward_rules.py",
    "slime/rollout/",
    "slime/test_plugins.py",
    "slime/test_types.py",
    "slime/tracking/",
    "slime/training/test_schedule.py",
    "slime/utils/",
    "toolcall_rl/test_reading.py",
    "toolcall_rl/test_tools_config.py",
    "slime/weights/test_weight_update.py",
)
"""Pure functions, and contracts without other processes."""
WITH_PROCESSES = (
    "test_command.py",
    "test_engine_judge.py",
    "test_families.py",
    "test_fully_async.py",
    "test_judge_faults.py",
    "test_processes.py",
    "test_real_engine.py",
    "test_worker_process.py",
)
"""Slow files in these folders."""
WHOLE_LOOPS = (
    "system/",
    "lab/e2e/",
    "openclaw_client/",
)
WHOLE_TRAINING = (
    "slime/test_training_run.py",
    "slime/gate/test_run.py",
    "slime/test_resume.py",
    "slime/test_orderly_stop.py",
    "slime/ray/",
    "slime/engines/sglang/test_broadcast_run.py",
    "slime/processes/",
)
WHOLE = (*WHOLE_LOOPS, *WHOLE_TRAINING)
"""Full runs, clusters and supervisors: many processes that mostly wait. They run in two sequences, next to the others; a
single sequence would be the longest queue, and end alone."""
TOGETHER = (
    ("slime/training/megatron/",),
    (
        "slime/training/fsdp/",
        "slime/training/distillation/",
        "slime/training/core/",
        "slime/vision/test_ranks.py",
    ),
    (
        "openclaw/store/",
        *(f"openclaw/trainer_hooks/test_{name}.py" for name in ("credit", "lease", "replay", "trust")),
    ),
    ("slime/engines/embedded/",),
    ("slime/rollout/",),
    ("openclaw/http/", "openclaw/clients/test_error_matchers.py"),
    ("swe_rl/",),
)
"""Each row shares an expensive start, made once per process: a forked trainer, PostgreSQL, an engine, the packages of
clients, or packages of sandboxes."""
LONG = (
    "repository/test_style.py",
    "lab/long/",
    "lab/offline/",
    "slime/test_rl_in_one_file.py",
    "openclaw/judge/test_adversarial.py",
    "terminal_rl/test_cheats.py",
    "launch/test_before_install.py",
    "launch/test_refusals.py",
    "launch/test_scripts.py",
)
"""Files that take over ten seconds. They start first, so that no process runs one alone at the end."""


def is_quick(path: Path) -> bool:
    return _place(path).startswith(QUICK) and path.name not in WITH_PROCESSES


def rank(path: Path) -> int:
    """Returns the order of files in several processes: full runs, then those of `TOGETHER` and `LONG`, then the
    others."""
    queues = (WHOLE_LOOPS, WHOLE_TRAINING, *TOGETHER, *((name,) for name in LONG))
    place = _place(path)
    return next((at for at, names in enumerate(queues) if place.startswith(names)), len(queues))


def queue(path: Path) -> str:
    """Returns the queue of a file, which runs in sequence in one process: full runs of one kind, one row of
    `TOGETHER`, or a single file."""
    place = _place(path)
    rows = (WHOLE_LOOPS, WHOLE_TRAINING, *TOGETHER)
    return next((names[0] for names in rows if place.startswith(names)), str(path))


def queues(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Item]]:
    """Returns the tests of each `queue`, which share the fixtures of one process; in the order of the first tests."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(queue(item.path), []).append(item)
    return found


def _place(path: Path) -> str:
    tests = ROOT / "tests"
    return path.relative_to(tests).as_posix() if path.is_relative_to(tests) else ""
