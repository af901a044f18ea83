"""Command line of the embedded engine."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import REQUIRED, flag


@dataclass(frozen=True)
class EmbeddedArguments:
    """Settings of one embedded engine; each field is the flag of the same name."""

    model_path: str = flag(REQUIRED, "Hugging Face model folder")
    host: str = flag("127.0.0.1", "address to listen on")
    port: int = flag(
        30010, "port to listen on; 0: a free port, reported in the ready line", least=0, most=65535
    )
    weights_file: str | None = flag(
        None,
        "file with version, path and checksum of the live weights; read at start if it exists",
        unit="JSON",
    )
    context_length: int | None = flag(
        None, "maximum tokens of prompt and answer (default: the model's)", least=1
    )
    max_running_requests: int = flag(64, "maximum concurrent requests", least=1)
    max_loaded_adapters: int = flag(
        64, "maximum adapters in memory; requests for others wait until they are loaded", least=1
    )
    chunked_prefill_size: int = flag(512, "maximum prompt tokens per step", least=1)
    max_total_tokens: int | None = flag(None, "maximum tokens in the KV cache (default: by memory)", least=1)
    threads: int = flag(1, "CPU threads per forward pass", least=1)
    use_idle_processors: bool = flag(False, "use more threads than --threads while processors are idle")
    nice: int = flag(0, "niceness increment of the process", least=0, most=19)
    device: str = flag("auto", "device of the model", choices=("auto", "cpu", "cuda"))
    dtype: str = flag("auto", "dtype of the weights", choices=("auto", "float32", "bfloat16", "float16"))
    cast_weights: bool = flag(
        False, "accept versions with another dtype; only for an engine whose weights never go live"
    )
    log_level: str = flag("warning", "minimum log level", choices=("debug", "info", "warning", "error"))
    standby: str = flag(
        "auto",
        "keep a spare engine with the live weights; auto: on a CPU, if memory allows",
        choices=("auto", "on", "off"),
    )
    record_as: str | None = flag(
        None,
        "process record, RUN_DIR/processes/NAME, which the driver uses to restart the engine",
        unit="path",
    )
