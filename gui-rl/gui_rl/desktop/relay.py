"""Runs in the sandbox of a browser, which has no network: `relay.py SITES DEVTOOLS PROGRAM...`.

It forwards the browser's proxy port 3128 to the socket SITES, and the socket DEVTOOLS to port 9222. Exits with the
program. Needs only Python's standard library.
"""

import asyncio
import contextlib
import os
import sys

PROXY, DEVTOOLS = 3128, 9222


async def pump(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


def joined(connect):
    async def both(reader, writer):
        try:
            others = await connect()
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, others[1]), pump(others[0], writer))
        writer.close()
        others[1].close()

    return both


async def main(sites, devtools, *program):
    await asyncio.start_server(joined(lambda: asyncio.open_unix_connection(sites)), "127.0.0.1", PROXY)
    await asyncio.start_unix_server(joined(lambda: asyncio.open_connection("127.0.0.1", DEVTOOLS)), devtools)
    os.chmod(devtools, 0o666)
    nothing = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*program, stdin=nothing, stdout=nothing, stderr=nothing)
    status = await child.wait()
    return 128 - status if status < 0 else status  # shell convention for an exit by a signal


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
