"""Serves the page of a run that has ended, or that runs without a gateway: `python -m openclaw.page RUN_DIR`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import Response

from claw_base import peer
from claw_base.ports import listen
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from openclaw.common.version import VERSION
from openclaw.errors import ClawError, ClientError, ConfigError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.recorder import Recorder
from openclaw.http.admin import changes, records
from openclaw.http.limits import Guesses
from openclaw.http.middleware import HttpProtocol
from openclaw.page.app import add_page
from openclaw.settings import LOOPBACK, Settings
from openclaw.store import RolloutStore
from openclaw.views.source import ViewSource

PORT = 30080


@dataclass(frozen=True, kw_only=True)
class PageSettings:
    """Settings: the run to show, and the address of the page."""

    run_dir: Path = flag(REQUIRED, "run folder to show", positional=True)
    host: str = flag("127.0.0.1", "address to listen on")
    port: int = flag(PORT, "port to listen on; 0: any free one")
    model_path: str | None = flag(
        None,
        "model folder with the tokenizer that decodes tokens; default: the model of the run",
        unit="path",
    )
    allow_changes: bool = flag(
        False, "allow users to overrule the judge and to delete data; default: read-only"
    )
    admin_key: str | None = flag(
        None, "key for the page and /admin", env=("OPENCLAW_ADMIN_KEY",), variable_only=True
    )


def source_of_run(run_dir: Path, model_path: str | None, admin_key: str | None, writable: bool) -> ViewSource:
    """Returns the data source of a run folder.

    The tables of an older store are migrated; nothing else is changed. Raises ConfigError if the folder has no store,
    StoreError if the store cannot be read.
    """
    arguments = _arguments(run_dir)
    model = Path(model_path or arguments.get("hf_checkpoint") or "").expanduser()
    recorder = Recorder(RolloutStore(_buffer(run_dir, arguments)), Settings.session_ttl)
    return ViewSource(
        recorder=recorder,
        run_dir=run_dir,
        tokenizer=Tokenizer(model) if (model / "tokenizer.json").is_file() else None,
        admin_key=admin_key,
        model_name=str(arguments.get("served_model_name") or run_dir.resolve().name),
        writable=writable,
    )


def create_app(source: ViewSource) -> FastAPI:
    """Returns the page as an application of its own, without a gateway."""
    app = FastAPI(title="OpenClaw-RL page", docs_url=None, redoc_url=None)
    app.state.views, app.state.guesses = source, Guesses()
    peer.can_identify_users()
    app.include_router(records.router)
    app.include_router(changes.router)
    add_page(app)
    app.add_exception_handler(ClawError, _failure)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit status: 2 for invalid settings."""
    args = parse(PageSettings, argv, "python -m openclaw.page", __doc__, VERSION)
    try:
        key = args.admin_key
        if args.host not in LOOPBACK and key is None:
            raise ConfigError(
                f"--host {args.host} is not a loopback address: set OPENCLAW_ADMIN_KEY to require a key"
            )
        source = source_of_run(args.run_dir, args.model_path, key, args.allow_changes)
        with listen(args.host, args.port) as listener:
            host, port = listener.getsockname()[:2]
            mode = "changes are allowed" if args.allow_changes else "read-only"
            print(
                f"ready: http://{host}:{port}/ shows {args.run_dir} ({mode}); press Ctrl-C to stop",
                flush=True,
            )
            config = uvicorn.Config(
                create_app(source),
                http=HttpProtocol,
                proxy_headers=False,
                log_level="warning",
                timeout_graceful_shutdown=1,
            )
            uvicorn.Server(config).run(sockets=[listener])
        if source.recorder is not None:
            source.recorder.close()
    except ClawError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _arguments(run_dir: Path) -> dict[str, Any]:
    """Returns the flag values of the last start of the run; {} if unknown."""
    try:
        arguments = orjson.loads((run_dir / "arguments.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _buffer(run_dir: Path, arguments: dict[str, Any]) -> str:
    """Returns the location of the store, also if the run folder was moved. Raises ConfigError."""
    for folder in (run_dir / "buffer", run_dir):
        if (folder / "buffer.db").is_file():
            return str(folder)
    if arguments.get("rl_buffer_url"):
        return str(arguments["rl_buffer_url"])
    named = arguments.get("rl_buffer_dir")
    if named and (Path(named) / "buffer.db").is_file():
        return str(named)
    raise ConfigError(
        f"{run_dir} contains no buffer/buffer.db: pass the run folder (RUN_DIR) of a run that recorded turns"
    )


async def _failure(request: Request, error: Exception) -> Response:
    if not isinstance(error, ClientError):
        error = ClientError(str(error), code="store_error", status=500, kind="server_error")
    return Response(orjson.dumps(error.body()), error.status, media_type="application/json")


if __name__ == "__main__":
    sys.exit(main())
