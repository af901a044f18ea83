"""Environments in another Python: `python serve.py KIND OPTIONS`, started by `slime.agents.foreign.worker`.

Messages are JSON lines. A request is {"id", "do", "body"}; the reply has the same id with "answer", "away" (a failure
not caused by the agent), or "refused" (a retry would fail too). The message with id 0 is the greeting. Needs only the
standard library, and the imports of the kind; libraries' prints go to stderr.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
from typing import Any

Json = dict[str, Any]
LONGEST_LINE = 64 << 20
DOES = ("tasks", "reset", "step", "evaluate", "close")


class Refused(Exception):
    """A request that cannot be met; a retry would fail too."""


class Wire:
    """Standard input and output, protected from prints and reads of libraries."""

    def __init__(self) -> None:
        self.source, self.out = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        self.lock = threading.Lock()

    def send(self, message: Json) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self.lock:
            while data:
                data = data[os.write(self.out, data) :]

    async def reader(self) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(limit=LONGEST_LINE)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(self.source, "rb"))
        return reader


async def serve(wire: Wire, kind: str, options: Json) -> None:
    """Serves until the other side closes the connection."""
    try:
        side = importlib.import_module(f"{kind}_side").Side(options)
        await side.start()
    except Exception as error:
        wire.send({"id": 0, "refused": f"{type(error).__name__}: {error}"})
        return
    wire.send({"id": 0, "answer": {}})
    running: set[asyncio.Task[None]] = set()
    lines = await wire.reader()
    while line := await lines.readline():
        task = asyncio.create_task(answer(wire, side, json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    await side.stop()


async def answer(wire: Wire, side: Any, message: Json) -> None:
    reply: Json
    try:
        if message["do"] not in DOES:
            raise Refused(f"unknown request {message['do']!r}")
        reply = {"answer": await getattr(side, message["do"])(**message["body"])}
    except Refused as error:
        reply = {"refused": str(error)}
    except Exception as error:
        reply = {"away": f"{type(error).__name__}: {error}"}
    wire.send({"id": message["id"], **reply})


if __name__ == "__main__":
    sys.modules["serve"] = sys.modules[
        "__main__"
    ]  # so that kinds raise the same Refused class that is caught here
    asyncio.run(serve(Wire(), sys.argv[1], json.loads(sys.argv[2])))
