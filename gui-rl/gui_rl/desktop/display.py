"""An X display of one episode: Xvfb, screenshots, and input by xdotool."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import secrets
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from gui_rl.desktop.inputs import PRINTABLE, SPARE
from gui_rl.screens.protocol import ScreenSize
from slime.errors import EnvironmentAway
from slime.sandbox import Workspace

START_SECONDS = 30.0
HAND_SECONDS = 60.0
END_SECONDS = 10.0
LOOK_AGAIN = 0.05  # seconds between two screenshots that are compared
CALM_SECONDS = 1.0  # seconds after which a picture that keeps changing is used as it is
NEWS_SECONDS = 0.2  # seconds in which programs notice a new keyboard mapping
ANY_ADDRESS = 0xFFFF
HEADER = struct.Struct(">25I")
"""Header of an XWD file, in which Xvfb keeps its frame buffer (X11/XWDFile.h)."""


class Display:
    """An X display; create it with `begin`.

    Attributes:
        socket: the socket that programs connect to.
        cookie: Xauthority file with the access key.
        hands_error: last error message of xdotool.
    """

    def __init__(self, files: Workspace, process: asyncio.subprocess.Process, number: str) -> None:
        self.files, self.process, self.number = files, process, number
        self._spare: list[str] = []
        self.hands_error = ""
        self.socket, self.cookie = Path(f"/tmp/.X11-unix/X{number}"), files.path / "cookie"

    @property
    def folder(self) -> Path:
        """Temporary folder of the display, removed even if this process is killed."""
        return self.files.path

    @classmethod
    async def begin(cls, size: ScreenSize) -> Display:
        """Starts a display. Raises EnvironmentAway."""
        cookie = secrets.token_bytes(16)
        files = await asyncio.to_thread(_files, cookie)
        folder = files.path
        number_pipe, write_end = os.pipe()
        geometry = ("-screen", "0", f"{size.width}x{size.height}x24")
        words = ("-displayfd", str(write_end), *geometry, "-nolisten", "tcp", "-noreset", "-dpi", "96")
        try:
            process = await asyncio.create_subprocess_exec(
                *_ended_with_us("Xvfb"), *words, "-auth", str(folder / "cookie"), "-fbdir", str(folder),
                pass_fds=(write_end,), start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            os.close(number_pipe)
            await asyncio.to_thread(files.close)
            raise EnvironmentAway(f"Xvfb does not start: {error}") from error
        finally:
            os.close(write_end)
        display = cls(files, process, await _number(number_pipe))
        if not display.number:
            await display.close()
            raise EnvironmentAway("Xvfb does not start: it names no display")
        display.cookie.write_bytes(_entry(display.number.encode(), cookie))
        display.cookie.chmod(0o644)  # for the sandboxes' user; no other user can list the folder
        return display

    async def hand(self, *words: str) -> str:
        """Returns the output of xdotool; empty if the command failed. Raises EnvironmentAway."""
        return await self._output_of("xdotool", *words)

    async def _output_of(self, *words: str) -> str:
        if self.process.returncode is not None:
            raise EnvironmentAway("the display is gone")
        environment = {"DISPLAY": f":{self.number}", "XAUTHORITY": str(self.cookie), "LANG": "C.UTF-8"}
        process = await asyncio.create_subprocess_exec(
            *words, env={**environment, "PATH": os.environ.get("PATH", "/usr/bin")},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            output, error = await asyncio.wait_for(process.communicate(), HAND_SECONDS)
        except TimeoutError as late:
            process.kill()
            raise EnvironmentAway("the display does not answer") from late
        self.hands_error = error.decode(errors="replace").strip()
        return output.decode(errors="replace") if process.returncode == 0 else ""

    async def prepare(self, text: str) -> None:
        """Maps characters missing on the keyboard to unused keys, and waits until programs notice: xdotool would do
        so between two key strokes, and programs miss the first. Raises EnvironmentAway."""
        new = [one for one in dict.fromkeys(text) if one not in PRINTABLE]
        if new and not self._spare:
            keymap = await self._output_of("xmodmap", "-pke")
            self._spare = re.findall(r"^keycode +(\d+) = *$", keymap, re.MULTILINE)[:SPARE]
        if new:
            pairs = zip(self._spare, new, strict=False)
            words = [word for key, one in pairs for word in ("-e", f"keycode {key} = U{ord(one):04X}")]
            await self._output_of("xmodmap", *words)
            await asyncio.sleep(NEWS_SECONDS)

    def picture(self) -> Image.Image:
        """Returns a screenshot. Raises EnvironmentAway."""
        try:
            data = (self.folder / "Xvfb_screen0").read_bytes()
            header = HEADER.unpack_from(data)
            size, width, height, line, colours = header[0], header[4], header[5], header[12], header[19]
            pixels = memoryview(data)[size + 12 * colours :]
            return Image.frombuffer("RGB", (width, height), pixels, "raw", "BGRX", line, 1)
        except (OSError, struct.error, ValueError) as error:
            raise EnvironmentAway(f"the display cannot be read: {error}") from error

    def png(self) -> bytes:
        file = io.BytesIO()
        self.picture().save(file, "PNG")
        return file.getvalue()

    async def calm(self) -> None:
        """Returns once the picture has stopped changing, or after `CALM_SECONDS`."""
        ends = asyncio.get_running_loop().time() + CALM_SECONDS
        before = None
        while asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(LOOK_AGAIN)
            now = await asyncio.to_thread(lambda: zlib.crc32(self.picture().tobytes()))
            if now == before:
                return
            before = now

    async def close(self) -> None:
        """Ends the display. Xvfb removes its socket, because its number may be reused as soon as it has exited."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), END_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        await asyncio.to_thread(self.files.close)


def _files(cookie: bytes) -> Workspace:
    files = Workspace(place="/run/display")
    files.write("cookie", _entry(b"", cookie))
    return files


def _ended_with_us(program: str) -> Sequence[str]:
    """Wraps a command with setpriv of util-linux, so that the kernel ends it with this process."""
    return ("setpriv", "--pdeathsig", "TERM", program)


async def _number(descriptor: int) -> str:
    """Returns the display number that Xvfb prints when it is ready; empty if it does not start."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        return (await asyncio.wait_for(reader.readline(), START_SECONDS)).decode().strip()
    except TimeoutError:
        return ""
    finally:
        transport.close()


def _entry(number: bytes, cookie: bytes) -> bytes:
    """Returns an Xauthority entry that is valid for any address (Xau(3))."""
    fields = (b"", number, b"MIT-MAGIC-COOKIE-1", cookie)
    return struct.pack(">H", ANY_ADDRESS) + b"".join(
        struct.pack(">H", len(field)) + field for field in fields
    )
