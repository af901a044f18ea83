"""Flags: inference engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from slime.arguments.declare import flag


@dataclass
class EngineArguments:
    """Inference engines. `--sglang-FLAG VALUE` is SGLang's own `--FLAG VALUE`, `--vllm-FLAG VALUE` is vLLM's."""

    rollout_backend: Literal["embedded", "sglang", "vllm"] = flag(
        "embedded", "inference engine", aliases=("--backend",)
    )
    engine_python: str | None = flag(
        None,
        "the Python that has SGLang or vLLM, each with a variable of its own (default: the one that runs this)",
        env=("SGLANG_PYTHON", "VLLM_PYTHON"),
    )
    rollout_num_gpus: int = flag(0, "GPUs of all engines together; 0 serves on the CPU")
    rollout_num_gpus_per_engine: int = flag(
        1, "GPUs over which one engine splits the model (SGLang: --tp-size, vLLM: --tensor-parallel-size)"
    )
    rollout_num_engines: int = flag(1, "engines where no GPU serves")
    rollout_external_engine_addrs: list[str] = flag(  # noqa: RUF009
        [],
        "engines that others run, HOST:PORT each, instead of own ones: they get every version of the weights from disk, "
        "which they must see under the same path (else --update-weight-transport nccl), and are never started or stopped",
    )
    rollout_external: bool = flag(False, "engines are run by others; needs --rollout-external-engine-addrs")
    update_weight_transport: Literal["disk", "nccl"] = flag(
        "disk",
        "how weights get into engines: read from their folder, or (SGLang) broadcast by a process beside the trainer's "
        "first rank, by NCCL between GPUs and by gloo else; an engine that cannot be reached so reads the folder",
    )
    update_weight_buffer_size: int = flag(
        512 * 1024**2, "bytes that are broadcast at a time, which both sides hold beside the weights"
    )
    engine_port: int = flag(0, "port of the first engine, the next ones follow; 0 takes free ports")
    engine_threads: int = flag(1, "CPU threads of one engine")
    context_length: int | None = flag(
        None,
        "tokens of prompt and answer (default: the model's)",
        env=("CONTEXT_LENGTH",),
        aliases=("--sglang-context-length",),
    )
    max_running_requests: int | None = flag(
        None,
        "requests that one engine answers at the same time (default: 64; SGLang and vLLM decide themselves)",
        aliases=("--sglang-max-running-requests",),
    )
    chunked_prefill_size: int | None = flag(
        None,
        "prompt tokens that an engine reads between two decode steps (default: 512; SGLang and vLLM decide themselves)",
        aliases=("--sglang-chunked-prefill-size",),
    )
    engine_words: ClassVar[dict[str, list[str]]] = {}

    prm_hf_checkpoint: str | None = flag(
        None,
        "folder of the judge model (default: --prm-model-path, else --hf-checkpoint)",
        env=("PRM_MODEL_PATH", "JUDGE_MODEL_PATH"),
    )
    prm_num_gpus: int = flag(
        0, "GPUs of all engines of the judge model (--prm-model-path); 0: none is started"
    )
    prm_num_gpus_per_engine: int = flag(1, "GPUs of one engine of the judge model")
    prm_teacher_num_gpus: int = flag(
        0, "GPUs of the engine of a teacher that is asked by --teacher-source inference; 0: none is started"
    )
    prm_teacher_hf_checkpoint: str | None = flag(
        None, "folder of that teacher (default: --hf-checkpoint)", env=("PRM_TEACHER_HF",)
    )

    @property
    def engine_count(self) -> int:
        """Number of engines of the policy."""
        if self.rollout_external_engine_addrs:
            return len(self.rollout_external_engine_addrs)
        return self.rollout_num_gpus // self.rollout_num_gpus_per_engine or self.rollout_num_engines
