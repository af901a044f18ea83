"""A browser and environments for tests of the GUI track; without a browser these tests skip."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gui_rl.actions import Coordinates
from gui_rl.chromium import NAMES, ScreenSize
from gui_rl.environment import GuiEnvironment, GuiSettings
from gui_rl.surroundings import Surroundings

WIDTH, HEIGHT = 800, 600
UNIT = Coordinates(True, WIDTH, HEIGHT)
MakeEnvironment = Callable[..., GuiEnvironment]


@pytest.fixture
def needs_browser() -> None:
    pytest.importorskip("playwright.async_api")
    if not any(map(shutil.which, NAMES)):
        pytest.skip("no Chromium: run_tests.sh installs Debian's, as root")


@pytest.fixture
async def surroundings(needs_browser: None) -> AsyncIterator[Surroundings]:
    made = Surroundings(ScreenSize(WIDTH, HEIGHT))
    yield made
    await made.close()


@pytest.fixture
def environment(surroundings: Surroundings) -> MakeEnvironment:
    """f(**settings): an environment in the browser of this test."""

    def make(**settings: Any) -> GuiEnvironment:
        return GuiEnvironment(GuiSettings(**{"unit": UNIT, **settings}), surroundings)

    return make
