"""`python -m slime.engines.launch --backend rented --rented-service module:Class --model-path FOLDER --port N`.

FOLDER holds tokenizer and configuration, no weights. Prints the ready line when the service has answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from claw_base.ports import bind
from claw_base.run_folder.usage import Meter
from slime.engines.json_http import SERVER_OPTIONS
from slime.engines.weights_file import first_weights
from slime.errors import ConfigError
from slime.rented.engine.model_folder import ModelFolder
from slime.rented.engine.server import RentedServer
from slime.rented.engine.weights import RentedVersions
from slime.rented.service import Sampler, ServiceAway, ServiceRefuses, ServiceSettings, connect

RETRY_SECONDS = 2.0


@dataclass(frozen=True)
class RentedEngineArguments:
    """How one rented engine runs; each field is the flag of the same name."""

    model_path: str
    rented_service: str
    rented_model: str
    rented_url: str
    host: str
    port: int
    weights_file: str | None
    context_length: int | None
    max_running_requests: int
    rented_stream_tokens: int
    usage_file: str | None
    usage_role: str
    log_level: str


def parse(argv: list[str]) -> RentedEngineArguments:
    parser = argparse.ArgumentParser(prog="python -m slime.engines.launch --backend rented")
    parser.add_argument("--model-path", required=True, help="folder of tokenizer and configuration")
    parser.add_argument(
        "--rented-service", required=True, metavar="MODULE:CLASS", help="client of the service"
    )
    parser.add_argument(
        "--rented-model", default="", help="the base model's name there; default: --model-path"
    )
    parser.add_argument("--rented-url", default="", help="base URL of the service; default: its own")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30010)
    parser.add_argument(
        "--weights-file", metavar="JSON", help="the live version; none: the base model for ever"
    )
    parser.add_argument(
        "--context-length", type=int, help="tokens of prompt and answer; default: the model's"
    )
    parser.add_argument("--max-running-requests", type=int, default=64)
    parser.add_argument(
        "--rented-stream-tokens", type=int, default=0, help="tokens asked for at a time; 0: the whole answer"
    )
    parser.add_argument("--usage-file", metavar="JSON", help="where tokens are counted")
    parser.add_argument("--usage-role", default="serving", help="for whom they are counted")
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="warning")
    found = vars(parser.parse_args(argv))
    found["rented_model"] = found["rented_model"] or found["model_path"]
    return RentedEngineArguments(**found)


async def serve(args: RentedEngineArguments) -> None:
    """Serves until a signal. Raises ConfigError, and OSError for a port that is taken."""
    folder = ModelFolder.read(args.model_path, args.context_length)
    settings = ServiceSettings(args.rented_model, args.rented_url)
    service = connect(args.rented_service, settings)
    meter = Meter(Path(args.usage_file) if args.usage_file else None, args.usage_role)
    with bind(args.host, args.port) as listener:
        await _reached(service.check)
        await _reached(lambda: meter.add(prefill=check_tokenizer(service.sampler(None), folder)))
        first = first_weights(args.model_path, args.weights_file)
        versions = RentedVersions(service, settings.model)
        if first.checksum is not None:
            await _reached(lambda: versions.load(first.path, first.version))
        server = RentedServer(versions, folder, meter, args.rented_stream_tokens, args.max_running_requests)
        http = uvicorn.Server(uvicorn.Config(server.app(), log_level=args.log_level, **SERVER_OPTIONS))
        http.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, lambda: setattr(http, "should_exit", True))
        host, port = listener.getsockname()[:2]
        ready = {"url": f"http://{host}:{port}", "model": args.model_path, "version": versions.live.number}
        print(json.dumps(ready | {"pid": os.getpid()}), flush=True)
        await http.serve(sockets=[listener])
        meter.flush()


async def _reached(ask: object) -> None:
    """Asks until the service answers: nothing can be served before, and whoever waits has a limit."""
    assert callable(ask)
    told = False
    while True:
        try:
            await asyncio.to_thread(ask)
            return
        except ServiceAway as error:
            if not told:
                print(f"engine: waiting for the service: {error}", file=sys.stderr)
            told = True
            await asyncio.sleep(RETRY_SECONDS)


def launch(argv: list[str]) -> int:
    """What `slime.engines.launch` calls; returns an exit status, 2 for what was refused."""
    args = parse(argv)
    try:
        asyncio.run(serve(args))
    except (ConfigError, ServiceRefuses) as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"engine: cannot listen on {args.host}:{args.port}: {error.strerror or error}", file=sys.stderr)
        return 2
    return 0


TEXT = "user: What is 2 + 3? assistant: 2 + 3 = 5. user: What is 2 + 4? assistant: 2 + 4 = 6. user: What is 2 + 5?"
LEAST = 2.0
"""Nats a token by which a model prefers a text over its own words in disorder."""


def check_tokenizer(sampler: Sampler, folder: ModelFolder) -> int:
    """Compares how likely the model finds a text and the same ids in disorder; returns how many tokens were asked.

    Raises:
        ConfigError: to the model these ids are no text. ServiceAway, ServiceRefuses.
    """
    if folder.tokenizer is None:
        return 0
    ids: list[int] = folder.tokenizer.encode(TEXT).ids
    mixed = random.Random(0).sample(ids, len(ids))
    text, noise = (sum(sampler.log_probs(asked).result()) / (len(ids) - 1) for asked in (ids, mixed))
    if text - noise < LEAST:
        raise ConfigError(
            f"{folder.path} is not the tokenizer of the model at the service: to the model plain words are noise "
            f"({text:.1f} nats a token, in disorder {noise:.1f}); give --model-path its own"
        )
    return 2 * len(ids)
