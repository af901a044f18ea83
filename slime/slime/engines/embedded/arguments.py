"""Command line of the embedded engine."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class EmbeddedArguments:
    """How one embedded engine runs; each field is the flag of the same name."""

    model_path: str
    host: str = "127.0.0.1"
    port: int = 30010
    weights_file: str | None = None
    context_length: int | None = None
    max_running_requests: int = 64
    chunked_prefill_size: int = 512
    max_total_tokens: int | None = None
    threads: int = 1
    nice: int = 0
    device: str = "auto"
    dtype: str = "auto"
    cast_weights: bool = False
    log_level: str = "warning"
    standby: str = "auto"
    record_as: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model-path", required=True, help="Hugging Face model folder")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=_port, default=30010, help="0 takes a free port; the ready line names it"
    )
    parser.add_argument(
        "--weights-file",
        metavar="JSON",
        help='{"version", "path", "checksum"} of the live weights; read at start if the file exists',
    )
    parser.add_argument(
        "--context-length", type=_positive, help="tokens of prompt and answer; default: the model's"
    )
    parser.add_argument("--max-running-requests", type=_positive, default=64)
    parser.add_argument(
        "--chunked-prefill-size", type=_positive, default=512, help="prompt tokens read in one step"
    )
    parser.add_argument(
        "--max-total-tokens", type=_positive, help="tokens in the KV store; default: by memory"
    )
    parser.add_argument("--threads", type=_positive, default=1, help="CPU threads of one forward pass")
    parser.add_argument("--nice", type=_niceness, default=0, help="added to the process's niceness")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto")
    parser.add_argument(
        "--cast-weights",
        action="store_true",
        help="take versions of another dtype, for an engine whose weights never go live",
    )
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="warning")
    parser.add_argument(
        "--standby",
        choices=["auto", "on", "off"],
        default="auto",
        help="whether a second engine with the live weights waits to take over; auto: on a CPU, where memory allows",
    )
    parser.add_argument(
        "--record-as",
        metavar="PATH",
        help="record of this process, RUN_DIR/processes/NAME: somebody watches it and starts it again when it dies",
    )


def from_namespace(namespace: argparse.Namespace) -> EmbeddedArguments:
    return EmbeddedArguments(
        **{field.name: getattr(namespace, field.name) for field in fields(EmbeddedArguments)}
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _niceness(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 19:
        raise argparse.ArgumentTypeError("must be between 0 and 19")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("must be between 0 and 65535")
    return value
