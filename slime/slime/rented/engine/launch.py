"""`python -m slime.engines.launch --backend rented --rented-service module:Class --model-path FOLDER --port N`.

FOLDER contains tokenizer and configuration, but no weights. Prints the ready line once the service has answered.
"""

from __future__ import annotations

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
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.engines.json_http import SERVER_OPTIONS
from slime.engines.weights_file import first_weights
from slime.errors import ConfigError
from slime.rented.engine.model_folder import ModelFolder
from slime.rented.engine.server import RentedServer
from slime.rented.engine.weights import RentedVersions
from slime.rented.service import Sampler, ServiceAway, ServiceRefuses, ServiceSettings, connect

PROGRAM = "python -m slime.engines.launch --backend rented"
RETRY_SECONDS = 2.0


@dataclass(frozen=True)
class RentedEngineArguments:
    """Settings of one rented engine; each field is the flag of the same name."""

    model_path: str = flag(REQUIRED, "folder of tokenizer and configuration")
    rented_service: str = flag(REQUIRED, "client of the service", unit="module:class")
    rented_model: str = flag("", "name of the base model at the service; default: --model-path")
    rented_url: str = flag("", "base URL of the service; default: its own")
    host: str = flag("127.0.0.1", "address to listen on")
    port: int = flag(30010, "port to listen on")
    weights_file: str | None = flag(
        None, "file that names the live version; without one, the base model is served", unit="JSON"
    )
    context_length: int | None = flag(None, "maximum tokens of prompt and answer; default: the model's")
    max_running_requests: int = flag(64, "concurrent requests")
    rented_stream_tokens: int = flag(0, "tokens per request to the service; 0: the whole answer")
    usage_file: str | None = flag(None, "file that counts tokens", unit="JSON")
    usage_role: str = flag("serving", "name under which tokens are counted")
    log_level: str = flag("warning", "lowest logged level", choices=("debug", "info", "warning", "error"))

    @property
    def remote_model(self) -> str:
        """Returns the base model's name at the service."""
        return self.rented_model or self.model_path


async def serve(args: RentedEngineArguments) -> None:
    """Serves until a signal arrives. Raises ConfigError, and OSError if the port is in use."""
    folder = ModelFolder.read(args.model_path, args.context_length)
    settings = ServiceSettings(args.remote_model, args.rented_url)
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
    """Retries until the service answers: nothing can be served before, and each caller has its own time-out."""
    assert callable(ask)
    announced = False
    while True:
        try:
            await asyncio.to_thread(ask)
            return
        except ServiceAway as error:
            if not announced:
                print(f"engine: waiting for the service: {error}", file=sys.stderr)
            announced = True
            await asyncio.sleep(RETRY_SECONDS)


def launch(argv: list[str]) -> int:
    """Starts the engine for `slime.engines.launch`; returns an exit status, 2 for invalid settings."""
    args = parse(RentedEngineArguments, argv, PROGRAM, "Serves a model at a service.")
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
MIN_DIFFERENCE = 2.0
"""Minimum difference, in nats per token, between the log-prob of a text and of its tokens in random order."""


def check_tokenizer(sampler: Sampler, folder: ModelFolder) -> int:
    """Verifies the tokenizer: compares the model's log-probs of a text and of the same ids in random order. Returns
    the number of tokens used.

    Raises:
        ConfigError: the model does not prefer the text, so the tokenizer is not its own. ServiceAway, ServiceRefuses.
    """
    if folder.tokenizer is None:
        return 0
    ids: list[int] = folder.tokenizer.encode(TEXT).ids
    mixed = random.Random(0).sample(ids, len(ids))
    text, noise = (sum(sampler.log_probs(asked).result()) / (len(ids) - 1) for asked in (ids, mixed))
    if text - noise < MIN_DIFFERENCE:
        raise ConfigError(
            f"the tokenizer in {folder.path} does not belong to the model at the service: the model's log-prob of plain "
            f"text is {text:.1f} nats a token, of the same tokens in random order {noise:.1f}; set --model-path to the "
            "model's own folder"
        )
    return 2 * len(ids)
