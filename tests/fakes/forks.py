"""New processes that need not import torch: forks of a process that has only imported it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SERVER = """
import gc, importlib, json, os, signal, sys, traceback
from claw_base.imports import without_garbage_collection


def run(script, words, output):
    '''In a fork of this process, as `python -c script words` with both outputs in one file; never returns.'''
    number = os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    os.dup2(number, 1)
    os.dup2(number, 2)
    status = 1
    try:
        sys.argv = ["-c", *words]
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # gloo's threads may abort an ordinary exit


def answer(script, processes, seconds):
    '''The first exit status that is not 0, or 0; the others are killed then, as they would wait for it.'''
    children = []

    def out_of_time(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(seconds)
    try:
        for words, output in processes:
            child = os.fork()
            if child == 0:
                signal.alarm(0)
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                run(script, words, output)
            children.append(child)
        while children:
            child, status = os.wait()
            children.remove(child)
            if status:
                return os.waitstatus_to_exitcode(status)
    except TimeoutError:
        return "out of time"
    finally:
        signal.alarm(0)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return 0


with without_garbage_collection():
    for module in sys.argv[1:]:
        importlib.import_module(module)
gc.freeze()  # a collection in a fork would copy every page that it looks at
for line in sys.stdin:
    print(json.dumps(answer(**json.loads(line))), flush=True)
"""


class Forks:
    """Runs scripts in forks of a process that has imported `modules`; that process starts with the first script."""

    def __init__(self, *modules: str) -> None:
        self.modules = modules
        self._server: subprocess.Popen[str] | None = None

    def run(self, script: str, folder: Path, *words: list[Any], seconds: int = 250) -> list[str]:
        """Runs `python -c script words` for each list of words in concurrent processes; returns their outputs.

        Raises AssertionError with the output if a process fails or times out, after all processes have ended.
        """
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", SERVER, *self.modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        outputs = [folder / f"output{number}" for number in range(len(words))]
        processes = [(list(map(str, own)), str(out)) for own, out in zip(words, outputs, strict=True)]
        status = self._ask({"script": script, "processes": processes, "seconds": seconds})
        printed = [out.read_text() if out.exists() else "" for out in outputs]
        assert status == "0", "\n".join([f"status {status}", *(text[-4000:] for text in printed)])
        return printed

    def _ask(self, order: dict[str, Any]) -> str:
        assert self._server is not None
        assert self._server.stdin is not None and self._server.stdout is not None
        try:
            print(json.dumps(order), file=self._server.stdin, flush=True)
            return self._server.stdout.readline().strip()
        except (
            BaseException
        ):  # includes the time limit of a test, after which the next test must not read this answer
            self.close()
            raise

    def close(self) -> None:
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.communicate()
            self._server = None
