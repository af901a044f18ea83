"""Desktop screens for episodes: `SCREENSHOT_BACKEND=xvfb`."""

from __future__ import annotations

import asyncio
import shutil

from gui_rl.desktop.display import Display
from gui_rl.desktop.programs import Programs
from gui_rl.desktop.screen import DesktopScreen
from gui_rl.screens.chromium import NAMES
from gui_rl.screens.protocol import ScreenSize
from gui_rl.screens.sites import SiteServer, Visit
from slime.errors import ConfigError, EnvironmentAway, SandboxError
from slime.sandbox import require_sandbox

NEEDED = ("Xvfb", "openbox", "xdotool", "xmodmap", "setpriv")
WINDOWS = ["openbox"]
MANAGER_SECONDS = 90.0


def require_desktop() -> None:
    """Raises ConfigError if a program is missing, or sandboxes do not work here."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if not any(map(shutil.which, NAMES)):
        missing.append("chromium")
    if missing:
        raise ConfigError(
            f"SCREENSHOT_BACKEND=xvfb needs {', '.join(missing)}; Debian: apt-get install xvfb openbox xdotool "
            "x11-xserver-utils chromium"
        )
    require_sandbox()


class Desktops:
    """Creates one desktop for each episode.

    Attributes:
        starts: number of started desktops.
    """

    def __init__(self, size: ScreenSize, sites: SiteServer | None = None) -> None:
        self.size, self.sites = size, sites or SiteServer()
        self.starts = 0

    async def ready(self) -> SiteServer:
        return self.sites

    async def screen(self, visit: Visit) -> DesktopScreen:
        programs: Programs | None = None
        display: Display | None = None
        try:
            display = await Display.begin(self.size)
            programs = await asyncio.to_thread(Programs, display, self.size)
            await self.sites.open_for(visit, programs.sites)
            programs.sites.chmod(0o666)
            await asyncio.to_thread(programs.start, WINDOWS)
            await _managed(display, programs)
        except (OSError, SandboxError, EnvironmentAway) as error:
            if programs is not None:
                await asyncio.to_thread(programs.close)
            await self.sites.close_for(visit)
            if display is not None:
                await display.close()
            raise EnvironmentAway(f"a desktop does not start: {error}") from error
        self.starts += 1

        async def end() -> None:
            await self.sites.close_for(visit)

        return DesktopScreen(display, programs, self.size, end)

    async def close(self) -> None:
        await self.sites.stop()


async def _managed(display: Display, programs: Programs) -> None:
    """Returns once a window manager is running: without one, windows receive no keys."""
    ends = asyncio.get_running_loop().time() + MANAGER_SECONDS
    while not await display.hand("get_desktop"):
        status = programs.boxes[0].exit_code()
        if status is not None or asyncio.get_running_loop().time() > ends:
            raise EnvironmentAway(
                f"openbox does not start ({display.hands_error or f'exit status {status}'})"
            )
        await asyncio.sleep(0.05)
