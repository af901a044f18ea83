"""An engine that samples nothing: SGLang's `/generate` with the same 64 tokens for every prompt, made in advance.

`python fake_engine.py PORT [SECONDS]` waits SECONDS between two tokens; without, all come at once in one chunk.
"""

from __future__ import annotations

import asyncio
import json
import sys

TOKENS = 64
FIRST_ID = 40
"""Ids of ordinary words in any byte-level vocabulary begin early; none of these is a special token."""
INFO = json.dumps({"weight_version": "1", "checksum": "0"}).encode()


def _chunk(count: int, last: bool) -> bytes:
    """One server-sent event, in HTTP's chunked form, with the answer up to `count` tokens."""
    ids = list(range(FIRST_ID, FIRST_ID + count))
    meta: dict[str, object] = {
        "finish_reason": {"type": "length"} if last else None,
        "weight_version": "1",
        "output_token_logprobs": [[-0.5, token, None] for token in ids],
    }
    if last:
        meta["weight_versions"] = [{"version": "1", "start": 0, "end": count}]
    event = b"data: " + json.dumps({"output_ids": ids, "meta_info": meta}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


STEPS = [_chunk(count, count == TOKENS) for count in range(1, TOKENS + 1)]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
WHOLE = HEAD + STEPS[-1] + END


async def main(port: int, pause: float) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [
                    int(line[15:]) for line in head.split(b"\r\n") if line[:15].lower() == b"content-length:"
                ]
                if length:
                    await reader.readexactly(length[0])
                if b"/generate" not in head[:30]:
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
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
