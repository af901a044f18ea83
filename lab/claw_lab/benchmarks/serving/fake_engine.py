"""Runs an engine that samples nothing: it answers each prompt with the same 64 prepared tokens, in the format of
SGLang's `/generate` and, for gateways of other projects, of an OpenAI chat completion (with ids and log-probs on
request).

    python -m claw_lab.benchmarks.serving.fake_engine PORT [SECONDS] [top]

It waits SECONDS between two tokens; without SECONDS it sends all of them in one chunk. `top`: adds the most likely
tokens of each position. It prints `ready` when it listens. `fake_engine` starts it in a separate process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

from claw_base.ports import free_port
from claw_lab import environment

TOKENS = 64
PROMPT_TOKENS = 900
FIRST_ID = 40
"""First id of the answer; this id and the next ones are ordinary text in a byte-level vocabulary."""
INFO = json.dumps({"weight_version": "1", "checksum": "0"}).encode()


def _chunk(count: int, last: bool) -> bytes:
    """Returns a server-sent event as an HTTP chunk, with the answer up to `count` tokens."""
    ids = list(range(FIRST_ID, FIRST_ID + count))
    meta: dict[str, object] = {
        "finish_reason": {"type": "length"} if last else None,
        "weight_version": "1",
        "output_token_logprobs": [[-0.5, token, None] for token in ids],
    }
    if "top" in sys.argv:
        meta["output_top_logprobs"] = [[[-0.5, token, None], [-1.5, 7, None]] for token in ids]
    if last:
        meta["weight_versions"] = [{"version": "1", "start": 0, "end": count}]
    event = b"data: " + json.dumps({"output_ids": ids, "meta_info": meta}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


STEPS = [_chunk(count, count == TOKENS) for count in range(1, TOKENS + 1)]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
WHOLE = HEAD + STEPS[-1] + END


def _chat(with_ids: bool) -> bytes:
    """Returns a complete HTTP answer: 64 tokens as an OpenAI chat completion."""
    words = [f"w{n} " for n in range(TOKENS)]
    choice: dict[str, object] = {
        "index": 0,
        "message": {"role": "assistant", "content": "".join(words)},
        "finish_reason": "length",
    }
    body: dict[str, object] = {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "fake",
        "choices": [choice],
        "usage": {
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": TOKENS,
            "total_tokens": PROMPT_TOKENS + TOKENS,
        },
    }
    if with_ids:
        choice["logprobs"] = {"content": [{"token": w, "logprob": -0.5, "top_logprobs": []} for w in words]}
        choice["token_ids"] = list(range(FIRST_ID, FIRST_ID + TOKENS))
        body["prompt_token_ids"] = [5] * PROMPT_TOKENS
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        len(data),
        data,
    )


PLAIN_CHAT, CHAT_WITH_IDS = _chat(False), _chat(True)


@contextlib.contextmanager
def fake_engine(pause_s: float = 0.0, *words: str) -> Iterator[str]:
    """Runs an engine in a separate process and yields its URL; it sends a token every `pause_s` seconds."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "claw_lab.benchmarks.serving.fake_engine",
        str(port),
        str(pause_s),
        *words,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


async def main(port: int, pause: float) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [
                    int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"
                ]
                body = await reader.readexactly(length[0]) if length else b""
                if b"/chat/completions" in head[:60]:
                    writer.write(CHAT_WITH_IDS if b'"return_token_ids"' in body else PLAIN_CHAT)
                elif b"/generate" not in head[:30]:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(INFO), INFO))
                elif not pause:
                    writer.write(WHOLE)
                else:
                    writer.write(HEAD)
                    for step in STEPS:
                        await asyncio.sleep(pause)
                        writer.write(step)
                    writer.write(END)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) if sys.argv[2:3] not in ([], ["top"]) else 0.0))
