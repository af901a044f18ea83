"""Runs the whole check in a limited time: parts in separate processes, the most informative first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 560.0
"""Seconds of a run of ten minutes, without the start of the machine and the copying of results."""
LEAST = 15.0
"""Seconds below which no part is started: importing Python, torch and transformers takes as long."""
LINES, LOG = "gpu_check.jsonl", "log.txt"


@dataclass(frozen=True)
class Part:
    """Sections of one process, which is killed after `seconds`."""

    sections: str
    seconds: float


PARTS = (
    Part("about,packed", 60),
    Part("probe,ipc", 60),
    Part("fsdp,agreement", 100),
    Part("large", 100),
    Part("embedded", 50),
    Part("megatron", 60),
    Part("megatron_moe", 60),
    Part("sdpa,fused,speed,flex_mask", 70),
    Part("fsdp_fused,fsdp_cpu_offload", 75),
    Part("qlora", 100),
    Part("megatron_hybrid", 240),
)
"""Attention in training; probe and transport of weights; memory against the plan, agreement; step and transfer of a
large model; serving; Megatron and the numbers for tuning; then 4 bits, and linear attention, whose kernels take
minutes to compile."""


@dataclass(frozen=True)
class Bar:
    """The target of a number of a line: `least` or `most`."""

    section: str
    key: str
    least: float = float("-inf")
    most: float = float("inf")

    def judge(self, line: dict[str, Any]) -> str | None:
        """Returns the judgement in words; None if the line is of another section or lacks the number."""
        value = line.get(self.key)
        if line["section"] != self.section or not isinstance(value, int | float):
            return None
        reached = self.least <= value <= self.most
        return f"{'ok ' if reached else 'NOT'} {self.section}.{self.key} {value:g} [{self.least:g}, {self.most:g}]"


BARS = (
    Bar("packed", "output", most=8 * 2.0**-8),
    Bar("packed", "gradients", most=8 * 2.0**-8),
    Bar("probe", "text", most=0.1),
    Bar("ipc", "equal", least=1),
    Bar("fsdp.step", "plan_over_most", 1.0, 1.15),
    Bar("large.step", "plan_over_most", 1.0, 1.15),
    Bar("large.step", "share_of_peak", least=0.45),
    Bar("large.version", "export_s", most=3.0),
    Bar("large.version", "gate_files_cpu_s", most=8.0),
)


def command_of(part: Part, out: Path) -> list[str]:
    """Returns the command of a part."""
    return [
        sys.executable, "-m", "claw_lab.long.gpu_check", "--only", part.sections, "--out", str(out),
    ]  # fmt: skip


def run(
    out: Path,
    seconds: float,
    parts: Sequence[Part] = PARTS,
    command: Callable[[Part, Path], list[str]] = command_of,
) -> int:
    """Runs the parts until the time is over, prints all lines and the targets; returns 1 if a part failed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    end, failed = time.monotonic() + seconds, False
    for part in parts:
        left = min(part.seconds, end - time.monotonic())
        if left < min(LEAST, part.seconds):
            _write(out, part=part.sections, skipped="no time is left")
            continue
        began = time.monotonic()
        status = _started(command(part, out), out / LOG, left)
        failed |= status != 0
        _write(out, part=part.sections, status=status, seconds=round(time.monotonic() - began, 1))
    print("\n".join(summary(out)), flush=True)
    return 1 if failed else 0


def _started(command: list[str], log: Path, seconds: float) -> int:
    """Returns the exit status of a program; after `seconds` it kills the program and its children and returns 124."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _write(out: Path, **values: Any) -> None:
    line = json.dumps({"section": "part", **values})
    print(line, flush=True)
    with (out / LINES).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def summary(out: Path) -> list[str]:
    """Returns all lines, shortened, then the targets of those that have any."""
    texts = (out / LINES).read_text(encoding="utf-8").splitlines()
    lines = [json.loads(text) for text in texts]
    judged = [verdict for line in lines for bar in BARS if (verdict := bar.judge(line))]
    return [*(text[:230] for text in texts), *judged]
