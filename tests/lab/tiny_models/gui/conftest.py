"""A browser and environments, as the GUI track's own tests have them."""

from tests.gui_rl.conftest import environment, needs_browser, surroundings

__all__ = ["environment", "needs_browser", "surroundings"]
