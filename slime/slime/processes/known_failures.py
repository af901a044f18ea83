"""Known failures by their messages, each with the flag that helps.

`explain(text)` is called when such a text first arrives: a failed call of a trainer, the log of a server that exits
at its start, a cluster that cannot be joined. `python -m slime.processes.known_failures FILE` examines any log.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Trouble:
    """`sign`: a regular expression for the message; `advice`: the cause, and the remedy."""

    name: str
    sign: str
    advice: str


TROUBLES = (
    Trouble(
        "no_compiler",
        r"Failed to build JIT module|[Cc]ould not find (?:nvcc|CUDA_HOME)|nvcc'?:? (?:is |command )?not found"
        r"|No such file or directory: '?ninja|[Nn]inja(?:: (?:command )?not found| is required to load)"
        r"|cannot find -lcuda|CUDA compiler and CUDA toolkit headers are incompatible|Python\.h: No such file",
        "the engine compiles kernels at its first request, and a part of the compiler is missing: bash "
        "instructions/check_gpu.sh names it; instructions/requirements-sglang.txt installs an nvcc that fits its torch",
    ),
    Trouble(
        "engine_graphs",
        r"[Cc]apture (?:cuda|CUDA) graph failed|--(?:mem-fraction-static|cuda-graph-max-bs) to a smaller value",
        "the engine's memory share leaves too little of the GPU for computing: set a smaller "
        "--sglang-mem-fraction-static (MEM_FRACTION_STATIC), --sglang-cuda-graph-max-bs-decode or --context-length "
        "(CONTEXT_LENGTH), or more GPUs per engine (TP); nvidia-smi shows whether another program uses memory there",
    ),
    Trouble(
        "engine_memory",
        r"increase --mem-fraction-static|KV cache is too small|No available memory for the cache",
        "the engine's share of the GPU is too small for weights and KV cache: set a larger --sglang-mem-fraction-static "
        "(MEM_FRACTION_STATIC), a smaller --context-length (CONTEXT_LENGTH), or more GPUs per engine (TP); "
        "python -m slime.plan computes what fits next to a trainer on the same GPU",
    ),
    Trouble(
        "host_memory",
        # Ray reports for every killed process that it may have been "by OOM killer"
        r"(?<!by SIGKILL by )OOM[- ]?kill|out of memory \(OOM\)|NODE_OUT_OF_MEMORY|running low on memory"
        r"|memory usage threshold|(?<!Of)MemoryError|Cannot allocate memory|killed a process for lack of memory",
        "out of CPU memory: stop other programs on that machine, remove --fsdp-cpu-offload, use fewer training "
        "processes, or a machine with more memory",
    ),
    Trouble(
        "gpu_memory",
        r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        "out of GPU memory: use a smaller --max-tokens-per-gpu (MAX_TOKENS_PER_GPU); --gradient-checkpointing; "
        "--log-probs-chunk-size 512; --fsdp-cpu-offload; LORA_ARGS='--use-lora --lora-rank 32', and --load-in-4bit; "
        "or more GPUs (ACTOR_GPUS). python -m slime.plan shows the memory of each part",
    ),
    Trouble(
        "shared_memory",
        r"No space left on device.{0,80}/dev/shm|/dev/shm.{0,80}(?:No space|too small|less than)|bus error.{0,80}shm",
        "/dev/shm is too small: docker run --shm-size=16g; in Kubernetes mount an emptyDir with medium: Memory there",
    ),
    Trouble(
        "disk_full",  # the first two are torch's messages
        r"unexpected pos \d+ vs \d+|PytorchStreamWriter failed|No space left on device|[Dd]isk quota exceeded",
        "the disk is full (df -h shows which): free space, or keep less of the run with --keep-checkpoints, "
        "--keep-versions or --keep-weights; the same command resumes from the last complete checkpoint",
    ),
    Trouble(
        "no_sglang",
        r"No module named '?sglang|sglang.{0,20} is not installed",
        "that Python has no SGLang: bash instructions/check_gpu.sh shows how to install it and how to set its Python",
    ),
    Trouble(
        "engine_python",
        r"undefined symbol|cannot open shared object file|sgl_kernel.{0,80}(?:version|not found)|was compiled against"
        r"|version `?(?:GLIBC|CXXABI)",
        "packages of the engine are incompatible: install instructions/requirements-sglang.txt into a separate "
        "environment; bash instructions/check_gpu.sh shows the installed versions",
    ),
    Trouble(
        "architecture",
        r"Model architectures? .{0,120}not supported|Unsupported architecture|does not recognize this architecture",
        "this version of the engine does not support the model's architecture: use a newer version, or another model",
    ),
    Trouble(
        "context",
        r"context_length \(\d+\) is greater than the derived|max_model_len.{0,80}(?:greater|larger) than the derived",
        "the context is longer than the model supports: set --context-length (CONTEXT_LENGTH) to at most "
        "max_position_embeddings of its config.json",
    ),
    Trouble(
        "tensor_parallel",
        r"not divisible by (?:tp|tensor)|must be divisible by (?:tp|tensor)|divide evenly.{0,40}tensor",
        "the model's attention heads are not divisible by the GPUs of an engine: set another TP",
    ),
    Trouble(
        "no_kernel",
        r"no kernel image is available|forward compatibility was attempted|driver version is insufficient"
        r"|driver on your system is too old",
        "the GPU driver is older than the CUDA that PyTorch and the engines were built for (CUDA 13: driver 580): "
        "install a newer driver, or (data-centre GPUs only) NVIDIA's cuda-compat-13-0 package with its folder on "
        "LD_LIBRARY_PATH; --rollout-backend embedded also runs with a build for an older CUDA (TORCH_INDEX_URL)",
    ),
    Trouble(
        "port",
        r"[Aa]ddress already in use|Errno 98",
        "the port is in use: stop the program that uses it, or choose another port (PORT, --engine-port, RAY_PORT)",
    ),
    Trouble(
        "ray_away",
        r"[Ff]ailed to connect to (?:Ray|GCS)|Could not connect to|Could not find any running Ray"
        r"|Unable to connect to GCS|Max retries exceeded.{0,120}(?:8265|/api/)",
        "no Ray answers at that address: start one (ray start --head --num-gpus=N), check RAY_ADDRESS (a driver joins "
        "at port 6379, ray job submit takes http://HEAD:8265), or unset RAY_ADDRESS and let the script start its own",
    ),
    Trouble(
        "ray_key",
        r"RAY_AUTH|AuthenticationError|InvalidAuthToken|[Aa]uthentication (?:token|failed)|Unauthorized",
        "Ray rejected the key: set the cluster's RAY_AUTH_MODE and token in every program that joins or submits too",
    ),
    Trouble(
        "ray_version",
        r"[Vv]ersion mismatch|version .{0,60}does not match",
        "Ray or Python differ between cluster and driver: install the ray of requirements.txt, with the same Python, on "
        "every machine",
    ),
    Trouble(
        "ray_room",
        r"could not reserve these bundles|[Ii]nfeasible|No available node types can fulfill|Insufficient resources",
        "the cluster has too few free GPUs: ray status shows them; make ACTOR_GPUS, ROLLOUT_GPUS or PRM_GPUS "
        "smaller, or stop the job that uses them",
    ),
    Trouble(
        "ray_slow",
        r"node timed out during startup|GCS has become overloaded|did not start within [\d.]+ s \(--ray-start-timeout\)",
        "Ray did not start in its time: the machine is too busy, or its disk too slow; stop other programs there. The "
        "start is tried again; a larger --ray-start-timeout waits longer",
    ),
    Trouble(
        "ray_agent",
        r"No available agent to submit job",
        "Ray's agent on the head accepts no jobs: it starts a little later than Ray itself, so try again; if it "
        "never does, that Python has ray without ray[default] (instructions/requirements-gpu.txt)",
    ),
    Trouble(
        "ray_package",
        r"exceeds the maximum size|Package size .{0,60}(?:exceeds|too large)",
        "the folder that is submitted is too large for Ray: submit without --working-dir, from a folder that every "
        "machine has",
    ),
)


def find(text: str) -> Trouble | None:
    """Returns the first known failure whose pattern matches the text."""
    return next((one for one in TROUBLES if re.search(one.sign, text, re.DOTALL)), None)


def explain(text: str) -> str:
    """Returns the advice; "" for an unknown failure."""
    trouble = find(text)
    return "" if trouble is None else trouble.advice


def with_advice(message: str, text: str = "") -> str:
    """Returns the message with the advice for it, or for the `text` that it is about, on a separate line."""
    advice = explain(f"{message}\n{text}")
    return f"{message}\n--> {advice}" if advice else message


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m slime.processes.known_failures LOG", file=sys.stderr)
        return 2
    try:
        advice = explain(Path(sys.argv[1]).read_text(errors="replace"))
    except OSError as error:
        print(f"error: {sys.argv[1]} cannot be read: {error.strerror}; name a log file", file=sys.stderr)
        return 2
    print(advice or "the log contains no known failure")
    return 0 if advice else 1


if __name__ == "__main__":
    sys.exit(main())
