"""The embedded engine as a process, started like by users, with functions for requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests import ROOT

SLIME = str(ROOT / "slime")


class Server:
    """An engine process started like by users."""

    def __init__(self, model: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "slime.engines.launch", "--backend", "embedded"]
        command += ["--model-path", str(model), "--port", "0", *flags]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([SLIME, os.environ.get("PYTHONPATH", "")])},
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read())
        self.ready: dict[str, Any] = json.loads(line)
        self.url: str = self.ready["url"]
        self.client = httpx.Client(base_url=self.url, timeout=60.0, trust_env=False)

    def post(self, path: str, body: object) -> httpx.Response:
        return self.client.post(path, json=body)

    def generate(self, prompt: list[int], *, logprobs: bool = True, **options: object) -> dict[str, Any]:
        """Sends a request; options are given by name, and all others go to sampling_params."""
        answer = self.post("/generate", body(prompt, logprobs, **options))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stream(self, prompt: list[int], **options: object) -> Iterator[dict[str, Any]]:
        """Yields parsed chunks of a streamed request; checks the final [DONE]."""
        with self.client.stream(
            "POST", "/generate", json={**body(prompt, True, **options), "stream": True}
        ) as answer:
            assert answer.status_code == 200, answer.read()
            yield from _lines(answer)

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(timeout=20)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def _lines(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    done = False
    for line in event_lines(answer):
        if line == "data: [DONE]":
            done = True
        elif line:
            assert line.startswith("data: ") and not done
            yield json.loads(line.removeprefix("data: "))
    assert done


def event_lines(answer: httpx.Response) -> Iterator[str]:
    """Yields the lines of a stream. Random text may contain Unicode line ends, at which httpx's `iter_lines` would
    also split."""
    rest = ""
    for piece in answer.iter_text():
        *whole, rest = (rest + piece).split("\n")
        yield from whole
    assert not rest


REQUEST_OPTIONS = {
    "rid",
    "logprob_start_len",
    "input_logprob_temperature",
    "top_logprobs_num",
    "token_ids_logprob",
    "return_text_in_logprobs",
}


def body(prompt: list[int], logprobs: bool = True, **options: object) -> dict[str, Any]:
    outer = {name: options.pop(name) for name in list(options) if name in REQUEST_OPTIONS}
    return {"input_ids": prompt, "return_logprob": logprobs, "sampling_params": options, **outer}
