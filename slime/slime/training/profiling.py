"""Traces selected training steps, for chrome://tracing and Perfetto."""

from __future__ import annotations

import gzip
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from slime.flags.sides import ServingSide

logger = logging.getLogger(__name__)


def trace_file(run_dir: str, rollout_id: int, rank: int) -> Path:
    return Path(run_dir) / "profile" / f"rollout_{rollout_id}_rank_{rank}.json.gz"


@contextmanager
def profiled(args: ServingSide, rollout_id: int, rank: int) -> Iterator[None]:
    """Profiles its body if `--profile` selects this rollout; writes `trace_file`."""
    if not args.profile or not args.profile_step_start <= rollout_id < args.profile_step_end:
        yield
        return
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=activities, record_shapes=True) as profiler:
        yield
    path = trace_file(args.run_dir, rollout_id, rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = path.with_suffix("")
    profiler.export_chrome_trace(str(plain))
    with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=3) as target:
        shutil.copyfileobj(source, target)
    plain.unlink()
    logger.info("profile of rollout %d: %s", rollout_id, path)
