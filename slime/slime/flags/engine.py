"""Flags: inference engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from claw_base.settings.declare import excludes, flag, needs

ONE_GPU = "{flag} {value}: the embedded engine uses one GPU; use sglang or vllm"


@dataclass
class EngineArguments:
    """Inference engines. `--sglang-FLAG VALUE` is SGLang's own `--FLAG VALUE`, `--vllm-FLAG VALUE` is vLLM's."""

    rollout_backend: Literal["embedded", "sglang", "vllm", "rented"] = flag(
        "embedded", "inference engine", aliases=("--backend",), main=True
    )
    engine_python: str | None = flag(
        None,
        "Python with SGLang or vLLM; each has its own variable (default: this one)",
        env=("SGLANG_PYTHON", "VLLM_PYTHON"),
    )
    rollout_num_gpus: int = flag(0, "total GPUs of the engines; 0 serves on the CPU", least=0, main=True)
    rollout_num_gpus_per_engine: int = flag(
        1,
        "GPUs per engine (SGLang: --tp-size, vLLM: --tensor-parallel-size)",
        least=1,
        rules=[excludes("rollout_num_gpus", rollout_backend="embedded", text=ONE_GPU)],
        main=True,
    )
    rollout_num_engines: int = flag(
        1,
        "number of engines without a GPU",
        least=1,
        rules=[
            needs(
                rollout_num_gpus=0,
                text="{flag} {value} is for serving on the CPU; drop it, or set --rollout-num-gpus 0",
            )
        ],
    )
    rollout_external_engine_addrs: list[str] = flag(
        [],
        "addresses of external engines, HOST:PORT, with access to the weights' folder (else "
        "--update-weight-transport nccl)",
        rules=[
            excludes(
                "rollout_num_gpus",
                text="--rollout-num-gpus {rollout_num_gpus}: the engines of {flag} have their own "
                "GPUs; set it to 0 (ROLLOUT_GPUS=0)",
            ),
            excludes(
                "engine_port",
                text=(
                    "--engine-port {engine_port} applies to engines started by slime, but {flag} "
                    "lists external ones"
                ),
            ),
            excludes(
                "colocate",
                text=(
                    "--colocate shares GPUs with engines started by slime, but {flag} lists external "
                    "ones; drop one"
                ),
            ),
        ],
    )
    rollout_external: bool = flag(
        False,
        "use external engines; needs --rollout-external-engine-addrs",
        rules=[
            needs(
                "rollout_external_engine_addrs",
                text="{flag}: list the engines with --rollout-external-engine-addrs HOST:PORT ...",
            )
        ],
    )
    update_weight_transport: Literal["disk", "nccl", "tensor"] = flag(
        "disk",
        "weight transport: disk, shared memory (tensor: embedded, SGLang), broadcast (nccl: SGLang); fallback: disk",
        rules=[
            excludes(
                rollout_backend=("embedded", "vllm"),
                update_weight_transport="nccl",
                text="{flag} {value}: the engines of --rollout-backend {rollout_backend} read each "
                "version from its folder; drop it",
            ),
            excludes(
                rollout_backend="vllm",
                update_weight_transport="tensor",
                text="{flag} {value}: vLLM reads each version from its folder; drop it",
            ),
            excludes(
                "colocate",
                update_weight_transport="nccl",
                text="{flag} {value}: with --colocate engine and trainer share a GPU, which NCCL does "
                "not support; use tensor, or drop one of them",
            ),
        ],
    )
    update_weight_buffer_size: int = flag(
        512 * 1024**2,
        "bytes per broadcast or memory transfer, allocated on both sides",
        least=1,
        rules=[needs(update_weight_transport=("nccl", "tensor"))],
    )
    weight_probe_limit: float | None = flag(
        None,
        "maximum mean difference of log-probs between SGLang or vLLM and the trainer, in nats "
        "(default: by dtype, 0.1 in bfloat16)",
        least=0,
        rules=[
            needs(
                rollout_backend=("sglang", "vllm"),
                text="{flag} is for engines of --rollout-backend sglang and vllm; drop it",
            )
        ],
    )
    engine_port: int = flag(
        0, "port of the first engine; others use the following ports; 0: free ports", least=0, most=65535
    )
    engine_threads: int = flag(1, "CPU threads per engine", least=1)
    context_length: int | None = flag(
        None,
        "maximum tokens of prompt and answer (default: the model's)",
        env=("CONTEXT_LENGTH",),
        aliases=("--sglang-context-length",),
        least=1,
        main=True,
    )
    max_running_requests: int | None = flag(
        None,
        "maximum concurrent requests per engine (default: 64; SGLang and vLLM: their own)",
        aliases=("--sglang-max-running-requests",),
        least=1,
    )
    chunked_prefill_size: int | None = flag(
        None,
        "maximum prompt tokens between two decode steps (default: 512; SGLang and vLLM: their own)",
        aliases=("--sglang-chunked-prefill-size",),
        least=1,
    )
    engine_words: ClassVar[dict[str, list[str]]] = {}

    prm_hf_checkpoint: str | None = flag(
        None,
        "folder of the judge model (default: --prm-model-path, else --hf-checkpoint)",
        env=("PRM_MODEL_PATH", "JUDGE_MODEL_PATH"),
    )
    prm_num_gpus: int = flag(
        0, "total GPUs of the judge model's engines (--prm-model-path); 0: start none", least=0
    )
    prm_num_gpus_per_engine: int = flag(
        1,
        "GPUs per engine of the judge model",
        least=1,
        rules=[excludes("prm_num_gpus", rollout_backend="embedded", text=ONE_GPU)],
    )
    prm_context_length: int | None = flag(
        None,
        "maximum tokens of question plus reply in a judge engine (default: --context-length)",
        env=("PRM_CONTEXT_LENGTH",),
        least=1,
        unit="tokens",
        rules=[needs("prm_num_gpus")],
    )
    prm_teacher_num_gpus: int = flag(
        0,
        "GPUs of the teacher's engine with --teacher-source inference; 0: no engine",
        least=0,
    )
    prm_teacher_hf_checkpoint: str | None = flag(
        None,
        "model folder of the teacher in the inference engine (default: --hf-checkpoint)",
        env=("PRM_TEACHER_HF",),
    )

    @property
    def engine_count(self) -> int:
        """Number of engines of the policy."""
        if self.rollout_external_engine_addrs:
            return len(self.rollout_external_engine_addrs)
        return self.rollout_num_gpus // self.rollout_num_gpus_per_engine or self.rollout_num_engines
