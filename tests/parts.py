"""Which tests answer at once, and which run beside which in several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
"""Pure functions, and contracts without another process."""
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
"""Files of these folders that are slow all the same."""
WHOLE = (
    "system/",
    "slime/test_training_run.py",
    "slime/gate/test_run.py",
    "slime/test_resume.py",
    "slime/test_orderly_stop.py",
    "slime/ray/",
    "slime/engines/sglang/test_broadcast_run.py",
    "slime/processes/",
    "lab/e2e/",
    "openclaw_client/",
)
"""Whole runs, clusters and supervisors: many processes that mostly wait. They run one after another, beside the rest."""
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
    ("swe_rl/",),
)
"""Each row shares a start, made once a process: a trainer that is forked, PostgreSQL, an engine, packages of boxes."""
LONG = (
    "repository/test_style.py",
    "lab/long/",
    "lab/offline/",
    "slime/test_rl_in_one_file.py",
    "openclaw/judge/test_adversarial.py",
    "terminal_rl/test_cheats.py",
    "launch/test_scripts.py",
)
"""Files of more than ten seconds. They begin before the others, so that no process is left alone with one at the end."""


def is_quick(path: Path) -> bool:
    return _place(path).startswith(QUICK) and path.name not in WITH_PROCESSES


def rank(path: Path) -> int:
    """The order of files in several processes: whole runs, then those of `TOGETHER` and `LONG`, then the others."""
    queues = (WHOLE, *TOGETHER, *((name,) for name in LONG))
    place = _place(path)
    return next((at for at, names in enumerate(queues) if place.startswith(names)), len(queues))


def queue(path: Path) -> str:
    """What runs one after another in one process: whole runs, those of one row of `TOGETHER`, else a file."""
    place = _place(path)
    if place.startswith(WHOLE):
        return "whole runs"
    return next((names[0] for names in TOGETHER if place.startswith(names)), str(path))


def _place(path: Path) -> str:
    tests = ROOT / "tests"
    return path.relative_to(tests).as_posix() if path.is_relative_to(tests) else ""


def scheduler(config: Any, log: Any) -> Any:
    """Of pytest-xdist: each `queue` stays in one process with its fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return queue(ROOT / nodeid.split("::", 1)[0])

    config.option.loadscopereorder = False  # what is whole comes first
    return ByFile(config, log)
