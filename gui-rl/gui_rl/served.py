"""Serves screens over HTTP: `python -m slime.pool --environment gui_rl.served:environment`."""

from __future__ import annotations

import functools

from claw_base.settings.command_line import environment as environment_variables
from claw_base.settings.command_line import from_environment
from claw_base.settings.declare import flags_of
from gui_rl.episode.environment import GuiEnvironment, GuiSettings
from gui_rl.episode.surroundings import Surroundings, require_backend
from gui_rl.generate import GuiFlags, settings_of
from gui_rl.screens.protocol import ScreenSize


@functools.cache
def _shared() -> tuple[GuiSettings, Surroundings]:
    flags = GuiFlags(**from_environment(flags_of(GuiFlags), environment_variables()))
    require_backend(flags.screenshot_backend)
    size = ScreenSize(flags.gui_screen_width, flags.gui_screen_height)
    return settings_of(flags), Surroundings(size, flags.screenshot_backend)


def environment() -> GuiEnvironment:
    """Returns one environment, configured by the track's environment variables. Raises ConfigError."""
    return GuiEnvironment(*_shared())
