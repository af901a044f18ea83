"""A gateway whose store holds a recorded run of the tiny model: turns, votes, token records, versions, curves.

`data/run.jsonl.gz` is the export of a demo's store, `data/metrics.jsonl.gz` its curves.
"""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from claw_base.ports import listen
from openclaw.http.middleware import HttpProtocol
from openclaw.server import create_app
from openclaw.settings import Settings
from openclaw.store import RolloutStore
from openclaw.store.files.importing import import_lines
from tests import MODEL
from tests.fakes.running_gateway import RunningGateway
from tests.fakes.scripted_engine import FakeEngine

DATA = Path(__file__).parent / "data"


@contextlib.contextmanager
def recorded_run(folder: Path) -> Iterator[RunningGateway]:
    """Yields the gateway, with an engine whose answers a test sets; its run folder is `folder`."""
    (folder / "metrics.jsonl").write_bytes(gzip.decompress((DATA / "metrics.jsonl.gz").read_bytes()))
    (folder / "run.jsonl").write_bytes(gzip.decompress((DATA / "run.jsonl.gz").read_bytes()))
    store = RolloutStore(folder / "buffer")
    import_lines(store, folder / "run.jsonl")
    store.close()
    engine = FakeEngine().start()
    settings = Settings(
        model_path=str(MODEL),
        engine_url=(engine.url,),
        enable_rl_intercept=True,
        rl_buffer_dir=str(folder / "buffer"),
        run_dir=str(folder),
        served_model_name="tiny-claw",
        log_level="warning",
    )
    with listen("127.0.0.1", 0) as listener, contextlib.ExitStack() as opened:
        app: Any = create_app(settings, settings.engine_url)
        config = uvicorn.Config(
            app, http=HttpProtocol, log_level="warning", lifespan="on", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield RunningGateway(url, app, engine, MODEL, folder / "buffer", opened)
        finally:
            server.should_exit = True
            thread.join(10)
            engine.end()
