"""The process that broadcasts weights, without Ray: forked from a process with torch, so that it starts at once."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

PRELOAD = ["slime.engines.sglang.sender", "uvicorn", "transformers.models.qwen3.modeling_qwen3"]


def context() -> Any:
    """Returns a context that forks from a process with the imports of sender and engine, so that a start needs no
    import."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(PRELOAD)
    return found


class SenderProcess:
    """A `SenderHandle`, or (`shares`) a `SharerHandle`. `started` counts its processes."""

    def __init__(self, shares: bool = False) -> None:
        self.shares = shares
        self.turn = threading.Lock()
        self.pool = ThreadPoolExecutor(4)
        self.starting = threading.Lock()
        self.process: Any = None
        self.started = 0

    def meet(self, *words: object) -> Future[Any]:
        return self.ask("meet", *words)

    def join(self, *words: object) -> Future[None]:
        return self.ask("join", *words)

    def send(self, *words: object) -> Future[None]:
        return self.ask("send", *words)

    def share(self, *words: object) -> Future[list[str]]:
        return self.ask("share", *words)

    def drop(self) -> Future[None]:
        return self.ask("drop")

    def leave(self) -> Future[None]:
        return self.ask("leave")

    def ask(self, *words: object) -> Future[Any]:
        with self.starting:
            if self.process is None:
                self.started += 1
                self.pipe, theirs = multiprocessing.Pipe()
                self.one_at_a_time = threading.Lock()
                self.process = context().Process(target=serve, args=(theirs, self.shares), daemon=True)
                self.process.start()
                theirs.close()
            return self.pool.submit(self.answer, self.process, self.pipe, self.one_at_a_time, words)

    @staticmethod
    def answer(process: Any, pipe: Connection, one_at_a_time: threading.Lock, words: tuple[Any, ...]) -> Any:
        """Raises the exception of the process; EOFError if it was killed, even if another process still has its end
        of the pipe open."""
        with one_at_a_time:
            pipe.send(words)
            while not pipe.poll(0.2):
                if process.exitcode is not None:
                    raise EOFError
            good, value = pipe.recv()
        if good:
            return value
        raise value

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self.process = None

    def close(self) -> None:
        self.kill()
        self.pool.shutdown()


def serve(pipe: Connection, shares: bool) -> None:
    import torch

    torch.set_num_threads(1)
    sender: Any
    if shares:
        from slime.engines.sglang.memory import Sharer

        sender = Sharer()
    else:
        from slime.engines.sglang.sender import Sender

        sender = Sender()
    while True:
        try:
            method, *words = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(sender, method)(*words)))
        except Exception as error:  # any exception is the answer
            pipe.send((False, error))
