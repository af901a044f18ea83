"""Flag names of other servers (vLLM, SGLang, llama.cpp, ...), and the names here."""

from __future__ import annotations

import argparse

from claw_base.settings.suggestions import suggestion

_CONTEXT = "--context-length"
_ENGINE = "a flag of the engine: start it yourself and name it with --engine-url"
_FAMILY = "not needed: the format follows from config.json of the model folder"

OTHER_WORDS = {
    "--api-key": "the variable SGLANG_API_KEY (a key on a command line can be read by every user of the machine)",
    "--alias": "--served-model-name",
    "--chat-template": _FAMILY,
    "--ctx-size": _CONTEXT,
    "--disable-log-requests": "--log-level warning",
    "--dp": _ENGINE,
    "--dtype": _ENGINE,
    "--enable-auto-tool-choice": _FAMILY,
    "--gpu-memory-utilization": _ENGINE,
    "--lora-modules": _ENGINE,
    "--max-context-len": _CONTEXT,
    "--max-model-len": _CONTEXT,
    "--max-num-seqs": "--max-running",
    "--max-running-requests": "--max-running",
    "--mem-fraction-static": _ENGINE,
    "--model": "--model-path",
    "--model-name": "--served-model-name",
    "--n-gpu-layers": _ENGINE,
    "--parallel": "--max-running",
    "--pipeline-parallel-size": _ENGINE,
    "--quantization": _ENGINE,
    "--reasoning-parser": _FAMILY,
    "--tensor-parallel-size": _ENGINE,
    "--tokenizer": "--model-path (the tokenizer is in the model's folder)",
    "--tool-call-parser": _FAMILY,
    "--tp": _ENGINE,
    "--tp-size": _ENGINE,
    "--trust-remote-code": "not supported: code in a model folder is never run",
    "--uvicorn-log-level": "--log-level",
    "-c": _CONTEXT,
    "-m": "--model-path",
    "-ngl": _ENGINE,
    "-tp": _ENGINE,
}


def hint(message: str, parser: argparse.ArgumentParser) -> str:
    """Returns a suggestion for the first unknown flag in a message of argparse."""
    words = message.split() if message.startswith("unrecognized") else []
    flag = next((word for word in words if word.startswith("-")), "")
    return suggestion(flag, parser, OTHER_WORDS) or "see --help"
