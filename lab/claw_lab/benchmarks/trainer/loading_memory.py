"""Measures the host memory while four ranks load a model.

    bash lab/run.sh benchmarks.trainer.loading_memory [--backend megatron] [--tiny]

A random bf16 model with the shape of Qwen3-0.6B (--model for another) is written, then loaded by four gloo ranks on a
CPU. The parent sums their proportional memory (Pss of /proc/PID/smaps_rollup, which counts shared pages once) while
they load. Memory that stays is counted separately from the memory above it, since shards stay in host memory only on
a CPU; pages of the model's file belong to the page cache, which the kernel can free.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from slime.plan.shape import KNOWN

RANKS = 4
INTERVAL = 0.02  # seconds between two measurements
TINY = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4, "vocab_size": 4096}
RANK = """
import sys
import torch
from slime.arguments import Arguments
from slime.training.core.distributed import join
folder, rank, backend = sys.argv[1:]
torch.set_num_threads(1)
args = Arguments(
    hf_checkpoint=folder, bf16=True, train_backend=backend, num_train_processes=4,
    tensor_model_parallel_size=4 if backend == "megatron" else 1,
)
device = torch.device("cpu")
if backend == "megatron":
    from slime.training.megatron.loading import load_model
    from slime.training.megatron.parallel import divide
    join(int(rank), 4, False, f"file://{folder}/meet", None, True)
    parallel = divide(args)
else:
    from slime.training.fsdp.loading import load_model
    mesh = join(int(rank), 4, False, f"file://{folder}/meet", None, True)
print("ready", flush=True)
sys.stdin.readline()
how = (args, parallel, device, True) if backend == "megatron" else (mesh, args)
model = load_model(folder, *how)
print("loaded", flush=True)
sys.stdin.readline()
"""


def write_model(folder: Path, name: str, tiny: bool) -> int:
    """Writes a random model in bf16; returns the bytes of its weights."""
    shape = {**KNOWN[name], **(TINY if tiny else {}), "dtype": "bfloat16"}
    config = AutoConfig.for_model(shape.pop("model_type"), **shape)
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    names = {name: x.shape for name, x in model.named_parameters()}
    weights = {name: torch.randn(shape, dtype=torch.bfloat16) for name, shape in names.items()}
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return sum(2 * x.numel() for x in weights.values())


def proportional(pids: list[int]) -> tuple[int, int]:
    """Returns the proportional memory of all processes together in bytes: anonymous, and of files."""
    kilobytes = {"Pss_Anon:": 0, "Pss_File:": 0}
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, value, *_ = line.split()
            if name in kilobytes:
                kilobytes[name] += 1024 * int(value)
    return kilobytes["Pss_Anon:"], kilobytes["Pss_File:"]


def measure(folder: Path, backend: str) -> dict[str, float]:
    """Returns the bytes above those of four processes that have only imported everything."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(folder), str(rank), backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        for process in ranks:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        pids = [process.pid for process in ranks]
        before = proportional(pids)
        for process in ranks:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        peak, began = watch(ranks, pids)
        seconds, after = time.monotonic() - began, proportional(pids)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    return {
        "stays": after[0] - before[0],
        "peak_above_what_stays": peak[0] - after[0],
        "pages_of_the_file": peak[1] - before[1],
        "seconds": seconds,
    }


def watch(ranks: list[subprocess.Popen[str]], pids: list[int]) -> tuple[tuple[int, int], float]:
    """Returns the maximum of each kind until all ranks have loaded."""
    import selectors

    began, peak, waiting = time.monotonic(), (0, 0), selectors.DefaultSelector()
    for process in ranks:
        waiting.register(process.stdout, selectors.EVENT_READ, process)  # type: ignore[arg-type]
    missing = len(ranks)
    while missing:
        now = proportional(pids)
        peak = max(peak[0], now[0]), max(peak[1], now[1])
        for key, _ in waiting.select(INTERVAL):
            assert key.data.stdout.readline() == "loaded\n", "a rank failed"
            waiting.unregister(key.fileobj)
            missing -= 1
    return peak, began


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="Qwen3-0.6B", choices=sorted(KNOWN))
    parser.add_argument("--backend", default="fsdp", choices=("fsdp", "megatron"))
    parser.add_argument(
        "--tiny", action="store_true", help="use a model of a few million parameters, as a quick test"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        size = write_model(Path(folder), args.model, args.tiny)
        measurements = measure(Path(folder), args.backend)
    for name in ("stays", "peak_above_what_stays", "pages_of_the_file"):
        measurements[f"{name}_in_bf16_copies"] = round(measurements[name] / size, 3)
    print(
        json.dumps(
            {"model": args.model, "backend": args.backend, "ranks": RANKS, "bf16_copy": size, **measurements}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
