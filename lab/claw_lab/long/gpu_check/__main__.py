"""Runs the sections on one GPU, or with --tiny on a CPU; prints one JSON line a number, and writes them to a file.

bash lab/run.sh long.gpu_check --out OUT [--only about,sdpa,...] [--tiny]

Ends with 1 if a section fails, also by numbers beyond its bound; the others run anyway. Takes about ten minutes on one
large GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from claw_lab.long.gpu_check import kernels, megatron_kinds, serving, training
from claw_lab.long.gpu_check.bench import Bench, Skip
from slime.ray.actor_process import let_segments_grow
from slime.utils.sdpa import without_cudnn

SECTIONS: dict[str, Callable[[Bench], None]] = {
    "about": kernels.about,
    "sdpa": kernels.sdpa,
    "packed": kernels.packed,
    "speed": kernels.speed,
    "flex_mask": kernels.flex_mask,
    "fused": kernels.fused,
    "fsdp": training.fsdp,
    "fsdp_fused": training.fsdp_fused,
    "fsdp_cpu_offload": training.fsdp_cpu_offload,
    "megatron": training.megatron,
    "megatron_moe": megatron_kinds.megatron_moe,
    "megatron_hybrid": megatron_kinds.megatron_hybrid,
    "agreement": training.agreement,
    "embedded": serving.embedded,
    "qlora": training.qlora,
    "large": training.large,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="gpu_check", help="folder of the report")
    parser.add_argument("--only", default="", help=f"sections, with commas: {','.join(SECTIONS)}")
    parser.add_argument("--tiny", action="store_true", help="on the CPU, to see that every section runs")
    options = parser.parse_args()
    wanted = [name for name in options.only.split(",") if name] or list(SECTIONS)
    if unknown := set(wanted) - SECTIONS.keys():
        parser.error(f"no section {min(unknown)}")
    if not options.tiny and not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --tiny runs on the CPU")
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    let_segments_grow(os.environ)
    without_cudnn()
    with tempfile.TemporaryDirectory(prefix="gpu_check") as work:
        bench = Bench(Path(work), out / "gpu_check.jsonl", options.tiny)
        failed = [name for name in wanted if not ran(bench, name)]
    bench.report("end", failed=failed)
    return 1 if failed else 0


def ran(bench: Bench, name: str) -> bool:
    """Whether a section ran or had a reason not to."""
    try:
        SECTIONS[name](bench)
    except Skip as reason:
        bench.report(name, skipped=str(reason))
    except Exception as error:  # the other sections are worth their time anyway
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
