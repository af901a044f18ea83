"""Measures the transfer of weights from a trainer to an engine through shared memory, with verification and without a
GPU: bytes per second of each stage.

`bash lab/run.sh benchmarks.serving.weight_handover --gigabytes 4` creates tensors with the shapes of a 4B model in
this process and transfers several versions of them to another one, which computes with them all the time. It prints
one JSON line. The stages run the product's code: `write` casts, writes into a slot, verifies and hashes the result;
`prove` maps the slot in the other process and compares names, shapes and the digests of some tensors; `switch`
replaces the tensors of the model between two steps; `end_to_end` is all three. `silence` is the longest time without
a step. `artifact` is the copy on disk, which is written while the engine verifies. `memcpy`, `sha256` and `xxh3` are
the rates of one core of this machine in the same run.

Wall time includes other work of the machine: `per_processor_second` has the same rates by the processor time of the
stages, of both processes and all their threads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from slime.engines.embedded.model import ServedModel
from slime.engines.embedded.weights import WeightStore
from slime.processes.control import SHARED_MEMORY
from slime.weights.checksum import checksum_of
from slime.weights.folders import write_weights
from slime.weights.mapped import WrittenMemories
from slime.weights.slots import copy_slot, free_slot

EMBEDDING, MATRIX = (151936, 2560), (9728, 2560)
STEP_SECONDS = 0.005
KINDS = {"bfloat16": torch.bfloat16, "float32": torch.float32}


def shapes(gigabytes: float) -> dict[str, tuple[int, int]]:
    """Returns names and shapes of `gigabytes` in bf16: an embedding, if there is room for one, and matrices of an
    MLP."""
    left, shapes_by_name = gigabytes * 1e9, dict[str, tuple[int, int]]()
    if left > 2 * 2 * EMBEDDING[0] * EMBEDDING[1]:
        shapes_by_name["model.embed_tokens.weight"] = EMBEDDING
    while (left - sum(2 * rows * columns for rows, columns in shapes_by_name.values())) > 0:
        shapes_by_name[f"model.layers.{len(shapes_by_name)}.mlp.up_proj.weight"] = MATRIX
    return shapes_by_name


def made(sizes: dict[str, tuple[int, int]], dtype: torch.dtype) -> dict[str, Tensor]:
    noise = torch.randn(MATRIX).to(dtype).flatten()
    return {
        name: noise.repeat(-(-rows * columns // len(noise)))[: rows * columns].reshape(rows, columns)
        for name, (rows, columns) in sizes.items()
    }


class Stepper:
    """A minimal decode loop: one product with a row of the weights every few milliseconds."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors, self.calls, self.silence = tensors, list[tuple[Callable[[], None], Future[None]]](), 0.0
        self.last, self.goes_on = time.perf_counter(), True
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def loop(self) -> None:
        first = next(iter(self.tensors.values()))
        while self.goes_on:
            while self.calls:
                call, done = self.calls.pop(0)
                call()
                done.set_result(None)
            first[0].float().sum().item()
            now = time.perf_counter()
            self.silence, self.last = max(self.silence, now - self.last), now
            time.sleep(STEP_SECONDS)

    def stop(self) -> None:
        self.goes_on = False
        self.thread.join()

    def between_steps(self, call: Callable[[], None]) -> None:
        done: Future[None] = Future()
        self.calls.append((call, done))
        done.result()


def serve(sizes: dict[str, tuple[int, int]], line: Connection) -> None:
    """Runs the other process: answers (prepare, slot, version), (switch, version), (silence,) until None comes."""
    torch.set_num_threads(1)
    tensors = {name: torch.zeros(1, dtype=torch.bfloat16).expand(shape) for name, shape in sizes.items()}
    model = ServedModel(None, tensors, {}, 1, 1, torch.device("cpu"), torch.bfloat16)
    stepper = Stepper(tensors)
    store = WeightStore(model, stepper.between_steps)
    while (order := line.recv()) is not None:
        what, *words = order
        if what == "silence":
            answer: Any = stepper.silence
            stepper.silence = 0.0
        elif what == "processor":
            answer = time.process_time()
        else:
            answer = getattr(store, what)(*words).checksum
        line.send(answer)
    stepper.stop()


def rate(action: Callable[[], object], size: int) -> tuple[float, float]:
    """Returns the best of five rates in GB/s, by wall time and by this thread's processor time."""
    clock = processor = float("inf")
    for _ in range(5):
        began, used = time.perf_counter(), time.thread_time()
        action()
        clock, processor = min(clock, time.perf_counter() - began), min(processor, time.thread_time() - used)
    return size / clock / 1e9, size / processor / 1e9


def of_this_machine() -> dict[str, tuple[float, float]]:
    """Returns the rates of one core."""
    source = torch.randn(1 << 26).bfloat16()
    target, data = torch.empty_like(source), source.view(torch.uint8).numpy().data
    return {
        "memcpy": rate(lambda: target.copy_(source), len(data)),
        "sha256": rate(lambda: hashlib.sha256(data), len(data)),
        "xxh3": rate(lambda: xxhash.xxh3_128(data), len(data)),
    }


def hand_over(
    weights: dict[str, Tensor],
    version: int,
    folders: tuple[Path, Path],
    line: Connection,
    memories: WrittenMemories,
) -> dict[str, float]:
    """Transfers one version; returns the seconds of each stage."""
    slots, disk = folders

    def ask(*words: object) -> Any:
        line.send(words)
        return line.recv()

    for tensor in weights.values():
        tensor[0, 0] = version
    ask("silence")
    used = ask("processor")
    began, cpu_began = time.perf_counter(), time.process_time()
    with free_slot(slots) as slot:
        checksum = checksum_of(write_weights(slot, weights.items(), len(weights), torch.bfloat16, memories))
    wrote, write_used = time.perf_counter(), time.process_time() - cpu_began
    with ThreadPoolExecutor(1) as pool:
        copied = pool.submit(artifact, slot, disk / f"v{version}")
        assert ask("prepare", str(slot), version) == checksum, "the engine holds other bits"
        proved = time.perf_counter()
        on_disk = copied.result()
    switching = time.perf_counter()
    assert ask("switch", version) == checksum
    switched = time.perf_counter()
    processor = {"write_used": write_used, "prove_used": ask("processor") - used}
    stages = processor | {
        "write": wrote - began,
        "prove": proved - wrote,
        "switch": switched - switching,
        "artifact": on_disk,
    }
    return stages | {"live": switched - began, "silence": ask("silence")}


def artifact(slot: Path, folder: Path) -> float:
    began = time.perf_counter()
    folder.mkdir()
    copy_slot(slot, folder)
    seconds = time.perf_counter() - began
    shutil.rmtree(folder)
    return seconds


def measure(options: argparse.Namespace) -> dict[str, Any]:
    sizes = shapes(options.gigabytes)
    weights = made(sizes, KINDS[options.source])
    size = sum(2 * rows * columns for rows, columns in sizes.values())
    context = multiprocessing.get_context("spawn")
    line, other = context.Pipe()
    engine = context.Process(target=serve, args=(sizes, other), daemon=True)
    engine.start()
    with (
        tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as slots,
        tempfile.TemporaryDirectory(dir=options.disk) as disk,
    ):
        memories = WrittenMemories()
        runs = [
            hand_over(weights, number, (Path(slots), Path(disk)), line, memories)
            for number in range(1, options.versions + 3)
        ]
        line.send(None)
        engine.join()
    steady = runs[2:]  # the first two versions create the two slots
    alone = of_this_machine()
    clock = {name: least(steady, size, name) for name in ("write", "prove", "artifact")}
    clock |= {"end_to_end": least(steady, size, "write", "prove", "switch")} | {
        name: x for name, (x, _) in alone.items()
    }
    used = {"write": least(steady, size, "write_used"), "prove": least(steady, size, "prove_used")}
    used |= {"end_to_end": least(steady, size, "write_used", "prove_used")} | {
        name: x for name, (_, x) in alone.items()
    }
    return {
        "gigabytes": round(size / 1e9, 2),
        "source": options.source,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "gigabytes_per_second": {name: round(value, 2) for name, value in clock.items()},
        "per_processor_second": {name: round(value, 2) for name, value in used.items()},
        "end_to_end_times_memcpy": round(clock["end_to_end"] / clock["memcpy"], 2),
        "end_to_end_times_sha256": round(clock["end_to_end"] / clock["sha256"], 1),
        "first_version_s": round(runs[0]["live"], 2),
        "live_with_artifact_s": round(min(one["live"] for one in steady), 2),
        "switch_ms": [round(1e3 * one["switch"], 1) for one in steady],
        "silence_ms": [round(1e3 * one["silence"], 1) for one in steady],
    }


def least(versions: Sequence[dict[str, float]], size: int, *stages: str) -> float:
    """Returns the GB/s of these stages together, of the version that was fastest in them."""
    return size / min(sum(one[stage] for stage in stages) for one in versions) / 1e9


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the weights in bf16")
    parser.add_argument(
        "--versions", type=int, default=3, help="number of versions after the two that create the slots"
    )
    parser.add_argument(
        "--source", choices=sorted(KINDS), default="bfloat16", help="dtype of the trainer's weights"
    )
    parser.add_argument(
        "--disk",
        type=Path,
        default=None,
        help="folder for the artifacts (default: the folder for temporary files)",
    )
    torch.set_num_threads(1)
    print(json.dumps(measure(parser.parse_args(argv))))


if __name__ == "__main__":
    main()
