"""Programs of one episode, each in a sandbox: they share the display and a home folder, and nothing else of this
machine."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from gui_rl.desktop.devtools import BASE
from gui_rl.desktop.display import Display
from gui_rl.desktop.relay import DEVTOOLS, PROXY
from gui_rl.scoring.task import TaskError
from gui_rl.screens.chromium import NAMES
from gui_rl.screens.protocol import ScreenSize
from slime.errors import EnvironmentAway
from slime.sandbox import Box, Finished, Limits, Workspace, run
from slime.sandbox.command import box_python

HOME = "/home/user"
PATHS = "/usr/local/bin:/usr/bin:/bin:/usr/games"
CRASHED = 128  # exit codes from here on encode the signal that ended a program
COMMAND_SECONDS = 120.0
ADDRESSES = 1 << 46  # JavaScript reserves far more address space than it uses
PROGRAM = Limits(
    memory=1 << 30,
    address_space=ADDRESSES,
    cpu_seconds=3600,
    processes=200,
    file_bytes=64 << 20,
    open_files=1024,
)
BROWSER = Limits(
    memory=2 << 30,
    address_space=ADDRESSES,
    cpu_seconds=3600,
    processes=600,
    file_bytes=256 << 20,
    disk_bytes=512 << 20,
    open_files=4096,
)
OF_CHECKS = {"PYTHONNOUSERSITE": "1", "PYTHONSAFEPATH": "1"}
"""Variables of commands that prepare and check tasks: their Python imports nothing from the home folder, which agents
can write."""
QUIETLY = ["/bin/sh", "-c", 'exec "$@" </dev/null >/dev/null 2>&1', "sh"]
SYSTEM = ("/etc/fonts", "/etc/xdg", "/etc/alternatives", "/etc/chromium.d")
POLICIES = {
    "URLBlocklist": ["*", "javascript:*", "data:*", "blob:*", "filesystem:*", "view-source:*", "chrome://*"],
    "URLAllowlist": [
        "http://*",
        "https://*",
        "file://*",
        "about:blank",
        "chrome://newtab",
        "chrome://top-chrome",
        "chrome://new-tab-page",
    ],
    "BrowserSignin": 0,
    "DefaultBrowserSettingEnabled": False,
    "MetricsReportingEnabled": False,
    "PasswordManagerEnabled": False,
    "TranslateEnabled": False,
}
"""Browser policies: an agent may change a page's state only by using the page, not with developer tools or a page
typed into the address bar. All URL schemes that are not listed are therefore blocked."""
FLAGS = (
    "--no-sandbox",  # it runs in a sandbox of ours
    "--test-type",  # suppresses the warning about --no-sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-smooth-scrolling",
    "--force-prefers-reduced-motion",
    "--force-device-scale-factor=1",
    "--no-first-run",
    "--no-default-browser-check",
    "--password-store=basic",
    "--start-maximized",
    "--lang=en-US",
    "--user-data-dir=/tmp/profile",
    f"--remote-debugging-port={DEVTOOLS}",
    f"--remote-allow-origins={BASE}",
    f"--proxy-server=http://127.0.0.1:{PROXY}",
    "--proxy-bypass-list=<-loopback>",
)


class Programs:
    """Starts and ends the programs of one episode.

    Attributes:
        home: the folder that programs and commands share; a browser has one of its own.
        sites: socket of the sites; their server creates it.
    """

    def __init__(self, display: Display, size: ScreenSize) -> None:
        self.display, self.size = display, size
        self.sites = display.folder / "sites"
        self.home = Workspace(place=HOME)
        self.browsing = Workspace(place="/run/browser")
        self.boxes: list[Box] = []
        self.browser_box: Box | None = None
        self._policies()

    def _policies(self) -> None:
        folder = self.display.folder / "policies" / "managed"
        folder.mkdir(parents=True)
        (folder / "all.json").write_text(json.dumps(POLICIES))
        for path in (folder.parent, folder):
            path.chmod(0o755)

    @property
    def devtools(self) -> Path:
        """Returns the socket of the browser's DevTools."""
        return self.browsing.path / "devtools"

    def start(self, words: Sequence[str]) -> None:
        """Starts a program. Raises TaskError if it is not installed, ConfigError, SandboxError."""
        self._start([*QUIETLY, path_of(words[0]), *words[1:]], PROGRAM, self.home)

    def start_browser(self, url: str) -> None:
        """Starts the browser, which has no access to files of the home folder. Raises as `start`."""
        python, _ = box_python()
        here = Path(__file__).with_name("relay.py")
        program = next(filter(None, (shutil.which(name, path=PATHS) for name in NAMES)))
        more = {here: "/run/relay.py", self.sites: "/run/sites"}
        more[self.display.folder / "policies"] = "/etc/chromium/policies"
        command = [python, "-I", "/run/relay.py", "/run/sites", "/run/browser/devtools", program, *FLAGS, url]
        self.browser_box = self._start([*QUIETLY, *command], BROWSER, self.browsing, more)

    def _start(
        self, program: Sequence[str], limits: Limits, home: Workspace, more: dict[Path, str] | None = None
    ) -> Box:
        box = Box(program, limits, {**self._seen(), **(more or {})}, self._variables(home), home)
        self.boxes.append(box)
        return box

    def _seen(self) -> dict[Path, str]:
        system = {Path(path): path for path in SYSTEM if Path(path).exists()}
        return {**system, self.display.socket: str(self.display.socket), self.display.cookie: "/run/cookie"}

    def _variables(self, home: Workspace) -> dict[str, str]:
        return {
            "DISPLAY": f":{self.display.number}",
            "XAUTHORITY": "/run/cookie",
            "HOME": home.place,
            "PATH": PATHS,
            "NO_AT_BRIDGE": "1",
        }

    def run(self, command: str | Sequence[str], shell: bool = False) -> Finished:
        """Runs a command in its own sandbox with the home folder. Raises ConfigError, SandboxError."""
        words = command if isinstance(command, str) else shlex.join(command)
        if isinstance(command, str) and not shell:
            words = shlex.join(shlex.split(command))
        limits = Limits(memory=1 << 30, processes=100, open_files=1024, output_chars=1 << 16)
        variables = {**self._variables(self.home), **OF_CHECKS}
        return run(words, COMMAND_SECONDS, self.home, limits, self._seen(), variables)

    def check(self) -> None:
        """Raises EnvironmentAway if a program was killed from outside, or the browser has crashed."""
        if any(box.lost() for box in self.boxes):
            raise EnvironmentAway("a program of the desktop was killed by another process of this machine")
        browser = self.browser_box
        if browser is not None and (browser.exit_code() or 0) >= CRASHED and browser.over is None:
            raise EnvironmentAway("the browser of a desktop has crashed")

    @property
    def browsing_now(self) -> bool:
        """Returns whether a browser is open."""
        return self.browser_box is not None and self.browser_box.exit_code() is None

    def close(self) -> None:
        """Ends all programs. Can be repeated."""
        for box in reversed(self.boxes):
            box.close()
        self.boxes.clear()
        self.home.close()
        self.browsing.close()


def path_of(program: str) -> str:
    """Returns the path of a program. Raises TaskError if it is not installed."""
    path = shutil.which(program.rpartition("/")[2], path=PATHS)
    if path is None:
        raise TaskError(f"config step launch: {program} is not installed")
    return path
