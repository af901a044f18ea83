"""Validates a file of instances: the reference repair must be graded as resolved. An empty patch and patches that
edit the tests, end the interpreter or imitate verdicts must not.

python -m swe_rl.check INSTANCES [--most N] [--parallel 2]
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.errors import ClawError
from swe_rl.checkout import checkout, patch_of
from swe_rl.grade import Grader
from swe_rl.instance import Instance, read_instances
from swe_rl.patch import PatchPolicy

EXIT = "import os, sys\nsys.stdout.flush()\nos._exit(0)\n"
IMITATION = """import sys
for test in {tests!r}:
    print("PASSED " + test, file=sys.__stdout__, flush=True)
raise SystemExit(0)
"""


def patches(instance: Instance) -> Iterator[tuple[str, str]]:
    """Yields names and patches: "gold", and attempts to pass without a repair."""
    yield "gold", instance.patch or _edited(instance, "gold")
    yield "empty", ""
    yield "tests edited", _edited(instance, "tests")
    if instance.bug is not None:
        yield "exit", _edited(instance, EXIT)
        yield "imitation", _edited(instance, IMITATION.format(tests=instance.fail_to_pass))


def _edited(instance: Instance, how: str) -> str:
    """Returns the patch of a workspace after running a command as an agent would."""
    with contextlib.closing(checkout(instance, for_agent=True)) as work:
        if how == "tests":
            for name in instance.test_files:
                work.write(name, b"")
        elif instance.bug is None:
            return ""
        else:
            source = work.read(instance.bug.file, 16 << 20).decode()
            work.write(
                instance.bug.file, (instance.bug.repair(source) if how == "gold" else how + source).encode()
            )
        return patch_of(instance, work)


def grades(instance: Instance) -> dict[str, str]:
    """Returns the reason of each patch's grade. The patch that edits tests is also graded without a policy, and must
    fail then too."""
    results: dict[str, str] = {}
    for name, patch in patches(instance):
        results[name] = Grader().grade(instance, patch).reason
        if name == "tests edited":
            results["tests edited, no policy"] = _without_policy(instance, patch)
    return results


def _without_policy(instance: Instance, patch: str) -> str:
    return Grader(PatchPolicy(tests=False, configuration=False)).grade(instance, patch).reason


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The instances to grade."""

    instances: Path = flag(REQUIRED, "file of instances", positional=True)
    most: int | None = flag(None, "most instances")
    parallel: int = flag(2, "concurrent instances")


def main() -> int:
    args = parse(Checked, None, "python -m swe_rl.check", __doc__.split("\n\n")[0])
    began = time.monotonic()
    try:
        chosen = list(read_instances(args.instances))[: args.most]
        with ThreadPoolExecutor(args.parallel) as threads:
            rows = list(threads.map(grades, chosen))
    except (ClawError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    table: dict[str, Counter[str]] = {}
    for instance, row in zip(chosen, rows, strict=True):
        for name, reason in row.items():
            table.setdefault(name, Counter())[reason] += 1
            if (reason == "resolved") != (name == "gold"):
                print(f"{instance.instance_id}: {name} is graded {reason}", file=sys.stderr)
    resolved = {name: counts["resolved"] for name, counts in table.items()}
    seconds = round(time.monotonic() - began, 1)
    print(json.dumps({"instances": len(chosen), "resolved": resolved, "reasons": table, "seconds": seconds}))
    return int(any((count != len(chosen)) if name == "gold" else count for name, count in resolved.items()))


if __name__ == "__main__":
    sys.exit(main())
