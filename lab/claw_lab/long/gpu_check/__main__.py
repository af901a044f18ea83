"""Checks one GPU in less than ten minutes: parts in order of importance, each with a time limit; results are written
as they come.

  bash lab/run.sh long.gpu_check --prepare             with a network, once: packages into build/gpu_check (optional)
  bash lab/run.sh long.gpu_check                       on the machine with a GPU: every part; needs no network
  bash lab/run.sh long.gpu_check --only about,sdpa     these sections, in one process, without a limit
  bash lab/run.sh long.gpu_check --tiny                every section on a CPU, to see that it runs

Writes gpu_check.jsonl, one line for each number, and log.txt. Exits with 1 if a section fails or a number is beyond
its bound; the other sections run anyway. Without the prepared packages the sections that need them are skipped.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from claw_lab.long.gpu_check import packages, plan

SECTIONS = {
    "about": "kernels",
    "packed": "kernels",
    "probe": "served",
    "ipc": "served",
    "fsdp": "training",
    "agreement": "training",
    "large": "training",
    "embedded": "serving",
    "qlora": "training",
    "megatron": "training",
    "megatron_hybrid": "megatron_kinds",
    "megatron_moe": "megatron_kinds",
    "sdpa": "kernels",
    "fused": "kernels",
    "speed": "kernels",
    "flex_mask": "kernels",
    "fsdp_fused": "training",
    "fsdp_cpu_offload": "training",
}
"""The module of each section; it is imported when the section runs, so that a missing package stops no other
section."""

VERSION_GB = 10
"""Size of the larger model's version, 8 GB, with a margin."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default=os.environ.get("OUT") or "gpu_check", help="folder of the report")
    parser.add_argument("--only", default="", help=f"sections, with commas: {','.join(SECTIONS)}")
    parser.add_argument(
        "--tiny", action="store_true", help="run all sections on the CPU with a tiny model, as a test"
    )
    parser.add_argument(
        "--prepare", action="store_true", help="download packages missing on the machine with a GPU"
    )
    parser.add_argument("--seconds", type=float, default=plan.SECONDS, help="total time limit of all parts")
    options = parser.parse_args()
    if options.prepare:
        return packages.prepare()
    sections = [name for name in options.only.split(",") if name] or list(SECTIONS)
    if unknown := set(sections) - SECTIONS.keys():
        parser.error(f"no section {min(unknown)}")
    if not options.tiny:
        packages.unpacked()
    if not options.tiny and not sees_gpu():
        parser.error("torch sees no GPU here; --tiny runs on the CPU")
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    if options.only or options.tiny:
        return run_here(sections, out, options.tiny)
    return plan.run(out, options.seconds)


def sees_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def memory() -> str | None:
    """Returns a folder of shared memory with room for a version of the larger model; None: use the folder of
    temporary files."""
    from slime.processes.control import SHARED_MEMORY

    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > VERSION_GB * 1e9:
        return str(SHARED_MEMORY)
    return None


def run_here(sections: list[str], out: Path, tiny: bool) -> int:
    """Runs these sections in this process."""
    made_do = packages.make_do()
    from claw_lab.long.gpu_check.bench import Bench
    from slime.ray.actor_process import enable_expandable_segments
    from slime.utils.sdpa import without_cudnn

    enable_expandable_segments(os.environ)
    without_cudnn()
    with (
        tempfile.TemporaryDirectory(prefix="gpu_check") as work,
        tempfile.TemporaryDirectory(prefix="gpu_check", dir=memory()) as versions,
    ):
        bench = Bench(Path(work), Path(versions), out / plan.LINES, tiny)
        if made_do:
            bench.report("made_do", given=made_do)
        failed = [name for name in sections if not ran(bench, name)]
    bench.report("end", failed=failed)
    return 1 if failed else 0


def ran(bench: object, name: str) -> bool:
    """Returns whether a section ran or had a reason not to."""
    import torch

    from claw_lab.long.gpu_check.bench import Bench, Skip

    assert isinstance(bench, Bench)
    try:
        getattr(importlib.import_module(f"claw_lab.long.gpu_check.{SECTIONS[name]}"), name)(bench)
    except Skip as reason:
        bench.report(name, skipped=str(reason))
    except Exception as error:  # the other sections run anyway
        if lacking := packages.lacking(error):
            bench.report(name, skipped=f"{lacking} is not installed: --prepare brings it")
            return True
        traceback.print_exc()
        bench.report(name, error=f"{type(error).__name__}: {error}"[:300])
        return False
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        bench.fresh()
    return True


if __name__ == "__main__":
    sys.exit(main())
