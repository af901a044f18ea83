"""Launches one engine: `python -m slime.engines.launch --backend embedded --model-path FOLDER --port N`.

Prints one JSON line {"url", "model", "version", "pid"} on stdout when it is ready; logs go to stderr. If it
cannot serve (no model, port in use, unsuitable weights), it prints one line on stderr and exits with status
2. `--backend sglang` starts SGLang (see `slime.engines.sglang.launch`), `--backend vllm` vLLM
(`slime.engines.vllm.launch`), `--backend rented` a model at a service (`slime.rented.engine.launch`),
`--backend completions` one behind an OpenAI-compatible endpoint that returns ids
(`slime.rented.completions`).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from claw_base.hotswap.takeover import ReclaimedWorker, TakeoverId, socket_folder, take_over
from claw_base.imports import without_garbage_collection
from claw_base.ports import bind
from claw_base.settings.command_line import parse
from slime.engines.embedded.arguments import EmbeddedArguments
from slime.errors import ConfigError
from slime.plugins import load_attr

SUPERVISOR = "slime.engines.embedded.socket_supervisor"
SUPERVISED = sys.platform.startswith("linux")


def launch_sglang(argv: list[str]) -> None:
    """Starts SGLang and returns its exit status."""
    from slime.engines.sglang.launch import launch

    sys.exit(launch(argv))


def launch_embedded(argv: list[str]) -> None:
    """Parses the embedded engine's flags and serves until a signal."""
    args = parse(
        EmbeddedArguments,
        argv,
        "python -m slime.engines.launch --backend embedded",
        "Serves a model on this machine.",
        epilog="Other engines have their own flags: --backend sglang --help, --backend vllm --help.",
    )
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # read when torch is imported, below
    if args.nice:
        os.nice(args.nice)
    takeover_id = takeover_id_of(args) if SUPERVISED else None
    if takeover_id is not None:
        # immediately, because adopted workers have no supervisor until this one runs
        with without_garbage_collection():
            importlib.import_module(SUPERVISOR)
    reclaimed: list[ReclaimedWorker] = []
    try:
        if takeover_id is None:
            listener = bind(args.host, args.port)
        else:
            listener, reclaimed = take_over(takeover_id, lambda: bind(args.host, args.port))
    except OSError as error:
        sys.exit(_refuse(f"cannot listen on {args.host}:{args.port}: {error.strerror or error}"))
    if SUPERVISED:
        with without_garbage_collection():
            from slime.engines.embedded.socket_supervisor import serve_supervised

        sys.exit(serve_supervised(args, listener, takeover_id, reclaimed))
    from slime.engines.embedded.server import serve
    from slime.engines.requests import WeightsError

    try:
        serve(args, listener)
    except (ConfigError, WeightsError) as error:
        sys.exit(_refuse(str(error)))


def takeover_id_of(args: EmbeddedArguments) -> TakeoverId | None:
    """Returns the identity by which a later supervisor finds the workers of this one.

    None for an engine that was started by hand; its workers exit with it.
    """
    if not args.record_as:
        return None
    kind = hashlib.blake2b(repr(args).encode(), digest_size=16).hexdigest()
    return TakeoverId(f"{args.host}:{args.port}", kind, socket_folder(Path(args.record_as).parent))


def launch_vllm(argv: list[str]) -> None:
    """Starts vLLM and returns its exit status."""
    from slime.engines.vllm.launch import launch

    sys.exit(launch(argv))


def launch_rented(argv: list[str]) -> None:
    """Serves a model of a rental service until a signal."""
    # imported by name, because it is a higher layer
    launch = load_attr("slime.rented.engine.launch:launch")
    sys.exit(launch(argv))


def launch_completions(argv: list[str]) -> None:
    """Serves completions of an OpenAI-compatible endpoint until a signal."""
    launch_rented(["--rented-service", "slime.rented.completions:CompletionsService", *argv])


BACKENDS: dict[str, Callable[[list[str]], None]] = {
    "embedded": launch_embedded,
    "rented": launch_rented,
    "sglang": launch_sglang,
    "vllm": launch_vllm,
}
"""Engines that a run can start with `--rollout-backend`."""
BY_HAND = {"completions": launch_completions}
"""Engines for models that cannot be trained."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Launch an engine.", add_help=False, allow_abbrev=False)
    parser.add_argument("--backend", choices=sorted(BACKENDS | BY_HAND), default="embedded")
    chosen, rest = parser.parse_known_args(argv)
    (BACKENDS | BY_HAND)[chosen.backend](rest)


def _refuse(message: str) -> int:
    print(f"engine: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
