"""A browser and environments for tests of the GUI track; without a browser the tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable

import pytest

from gui_rl.episode.environment import GuiEnvironment, GuiSettings
from gui_rl.episode.surroundings import BACKENDS, Backend, Surroundings, require_backend
from gui_rl.screens.actions import Coordinates
from gui_rl.screens.chromium import NAMES
from gui_rl.screens.protocol import ScreenSize
from slime.errors import ConfigError

WIDTH, HEIGHT = 800, 600
UNIT = Coordinates(True, WIDTH, HEIGHT)
MakeEnvironment = Callable[..., GuiEnvironment]


@pytest.fixture
def needs_browser() -> None:
    pytest.importorskip("playwright.async_api")
    if not any(map(shutil.which, NAMES)):
        pytest.skip("no Chromium: run_tests.sh installs Debian's, as root")


def needs(backend: Backend) -> None:
    """Skips the test if the backend lacks a program."""
    try:
        require_backend(backend)
    except ConfigError as error:
        pytest.skip(f"{error} (run_tests.sh installs Debian's, as root)")


@pytest.fixture(params=BACKENDS)
async def surroundings(request: pytest.FixtureRequest) -> AsyncIterator[Surroundings]:
    """Yields the browsers of each backend whose programs are installed."""
    needs(request.param)
    made = Surroundings(ScreenSize(WIDTH, HEIGHT), request.param)
    yield made
    await made.close()


@pytest.fixture
def environment(surroundings: Surroundings) -> MakeEnvironment:
    """f(**settings): an environment in the browser of this test."""

    def make(**settings: object) -> GuiEnvironment:
        return GuiEnvironment(GuiSettings(**{"unit": UNIT, **settings}), surroundings)

    return make
