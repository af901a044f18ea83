"""Runs in vLLM's Python: checks its flags, then serves.

`child.py --check FLAGS` only checks; `child.py JSON FLAGS` serves, and needs `slime` on PYTHONPATH. The JSON
object has the launcher's settings: host, port, model_path, version, checksum, device, probe_limit. For a
rejected flag, it prints one line on stderr and exits with status 2.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import secrets
import sys
from pathlib import Path
from typing import Any, NoReturn

KV_BYTES_ON_CPU = 1 << 30
"""KV cache size, the same as in the embedded engine. vLLM would use nine tenths of the machine's memory, and
fail if they are not free."""


def refuse(message: str) -> NoReturn:
    print(f"engine: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def engine_args(words: list[str]) -> tuple[str, Any]:
    """Returns vLLM's version, and its AsyncEngineArgs for valid flags."""
    if importlib.util.find_spec("vllm") is None:
        refuse(f"{sys.executable} has no vLLM: install vllm there, or set VLLM_PYTHON to its Python")
    try:
        from vllm import __version__
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError as error:
        refuse(f"cannot import vLLM in {sys.executable}: {error}")

    class Flags(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> NoReturn:
            refuse(f"vLLM {__version__}: {message}")

    parser = Flags(add_help=False, allow_abbrev=False)
    AsyncEngineArgs.add_cli_args(parser)
    namespace: argparse.Namespace = parser.parse_args(words)
    return str(__version__), AsyncEngineArgs.from_cli_args(namespace)


def complete(args: Any, words: list[str], on_cpu: bool) -> None:
    """Sets the values that the server needs, and the embedded engine's defaults, unless `words` set them."""
    flags = {word.split("=", 1)[0].replace("_", "-") for word in words if word.startswith("--")}
    args.worker_extension_cls = "slime.engines.vllm.worker.LiveWeights"
    args.disable_log_stats = True
    if "--max-logprobs" not in flags:
        args.max_logprobs = -1
    if "--seed" not in flags:
        args.seed = secrets.randbelow(1 << 31)
    if "--dtype" not in flags and (on_cpu or stored_dtype(args.model) == "float32"):
        args.dtype = "float32"  # vLLM would use bfloat16, which differs too much from the trainer
    if on_cpu and not flags & {"--kv-cache-memory-bytes", "--gpu-memory-utilization"}:
        args.kv_cache_memory_bytes = KV_BYTES_ON_CPU
        if args.max_model_len is None:
            args.max_model_len = -1  # as much as fits into memory


def stored_dtype(folder: str) -> str | None:
    """Returns the dtype in a model's config.json."""
    config: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    config |= config.get("text_config") or {}
    return config.get("dtype") or config.get("torch_dtype")


def main(words: list[str]) -> None:
    version, args = engine_args(words[1:])
    if words[0] == "--check":
        print(json.dumps({"version": version}), flush=True)
        return
    from vllm.platforms import current_platform

    request = json.loads(words[0])
    if request["device"] not in (None, current_platform.device_type):
        refuse(
            f"--device {request['device']}: the installed vLLM {version} is built for {current_platform.device_type}"
        )
    complete(args, words[1:], current_platform.is_cpu())
    from slime.engines.vllm.server import serve

    sys.exit(serve(args, request, version))


if __name__ == "__main__":
    main(sys.argv[1:])
