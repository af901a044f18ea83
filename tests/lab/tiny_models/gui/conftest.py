"""A browser and environments, as in the GUI track's tests."""

from tests.gui_rl.conftest import environment, needs_browser, surroundings

__all__ = ["environment", "needs_browser", "surroundings"]
