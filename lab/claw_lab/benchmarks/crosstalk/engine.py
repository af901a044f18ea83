"""An engine in this process whose adapters remember words: with another person's adapter, an answer contains that
person's words.

It has the embedded engine's routes for adapters and holds a limited number of them. It samples nothing: an answer
repeats the last marked word of its prompt, and the foreign words that its adapter has learned.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_lab.benchmarks.crosstalk.words import Findings, Words

LEARNED = "learned.json"
"""File of an adapter's folder: the words that it was trained on."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


@dataclass(frozen=True)
class Loaded:
    """An adapter in the engine's memory."""

    version: int
    words: frozenset[str]


@dataclass(frozen=True)
class Seen:
    """What the engine got for a request."""

    words: frozenset[str]
    adapter: str | None


class RememberingEngine:
    """Serves HTTP on a port of its own.

    Attributes:
        seen: the latest request by turn id; its reader removes it.
        evicted: number of adapters removed to make room.
    """

    def __init__(self, words: Words, findings: Findings, most_loaded: int) -> None:
        self.words, self.findings, self._most = words, findings, most_loaded
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()
        self._stop = words.tokenizer.token_id("<|im_end|>")
        self.seen: dict[str, Seen] = {}
        self.evicted = self.loads = self.requests = self.by_adapters = 0
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.close()

    def load(self, name: str, folder: str, version: int) -> None:
        """Loads a version of an adapter; the one that was not used for the longest time makes room."""
        learned = json.loads((Path(folder) / LEARNED).read_text())
        self.loads += 1
        self._loaded[name] = Loaded(version, frozenset(learned))
        self._loaded.move_to_end(name)
        for word in learned:
            if self.words.owners[word].adapter != name or word in self.words.gone:
                self.findings.add("adapter", f"{name} v{version} learned {word} of {self.words.owners[word]}")
        while len(self._loaded) > self._most:
            self._loaded.popitem(last=False)
            self.evicted += 1

    def unload(self, name: str) -> None:
        self._loaded.pop(name, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.lower().split(b"\r\n")
                length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                body = json.loads(await reader.readexactly(length)) if length else {}
                await self._answer(head.split(b" ", 2)[1].decode(), body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if path == "/load_lora_adapter":
            try:
                self.load(body["lora_name"], body["lora_path"], int(body["weight_version"]))
            except OSError as error:  # the adapter was deleted meanwhile
                _send(writer, 400, {"error": {"message": str(error)}})
                return
            _send(writer, 200, {"success": True})
        elif path == "/generate":
            await self._generate(body, writer)
        elif path == "/abort_request":
            _send(writer, 200, {})
        else:
            _send(writer, 200, {"weight_version": "0", "checksum": "base", "adapters": True})

    async def _generate(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        name = body.get("lora_path")
        adapter = self._loaded.get(name) if name else None
        if name and adapter is None:
            _send(writer, 404, {"error": {"message": "not loaded", "code": "adapter_not_loaded"}})
            return
        if name:
            self._loaded.move_to_end(name)
            self.by_adapters += 1
        self.requests += 1
        text = self.words.tokenizer.decode(body["input_ids"])
        marked = self.words.in_text(text)
        self._check(marked, name)
        if body["sampling_params"]["max_new_tokens"] == 0:
            _send(writer, 200, {"meta_info": {"input_token_logprobs": _scores(body)}})
            return
        self.seen[body["rid"].rpartition("-")[2]] = Seen(frozenset(marked), name)
        reply = f"Noted, {max(marked, key=text.rfind)}." if marked else "Tell me more."
        foreign = sorted(word for word in adapter.words if self._is_foreign(word, name)) if adapter else []
        answer = [*self.words.tokenizer.encode(" ".join([reply, *foreign])), self._stop]
        writer.write(HEAD)
        for end in (len(answer) // 2, len(answer)):
            writer.write(_event(answer[:end], end == len(answer), adapter.version if adapter else 0))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(END)

    def _is_foreign(self, word: str, name: str | None) -> bool:
        return self.words.owners[word].adapter != name

    def _check(self, marked: set[str], name: str | None) -> None:
        """Notes a prompt with words of several people, of a forgotten one, or for another person's adapter."""
        owners = {self.words.owners[word] for word in marked}
        if len(owners) > 1:
            self.findings.add("prompt", f"words of {', '.join(map(str, owners))}")
        if marked & self.words.gone:
            self.findings.add("prompt", f"forgotten words {marked & self.words.gone}")
        if name is not None and any(owner.adapter != name for owner in owners):
            self.findings.add("adapter", f"{name} answers {', '.join(map(str, owners))}")


def _scores(body: dict[str, Any]) -> list[list[Any]]:
    """Returns the log-probs of a prompt's ids, from the requested one on."""
    first, *others = body["input_ids"][body.get("logprob_start_len", 0) :]
    return [[None, first, None], *([-0.5, token, None] for token in others)]


def _event(ids: list[int], last: bool, version: int) -> bytes:
    """Returns an event of SGLang's stream as an HTTP chunk, with the answer so far."""
    meta: dict[str, Any] = {
        "finish_reason": {"type": "stop", "matched": ids[-1]} if last else None,
        "weight_version": str(version),
        "output_token_logprobs": [[-0.5, token, None] for token in ids],
    }
    if last:
        meta["weight_versions"] = [{"version": str(version), "start": 0, "end": len(ids)}]
    data = b"data: " + json.dumps({"output_ids": ids, "meta_info": meta}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def _send(writer: asyncio.StreamWriter, status: int, body: object) -> None:
    data = json.dumps(body).encode()
    writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(data), data))
