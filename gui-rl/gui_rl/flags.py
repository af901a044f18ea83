"""Flags of GUI runs; the module of the generate function carries them to the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import flag
from gui_rl.environment import ObservationType
from gui_rl.surroundings import Backend


@dataclass(frozen=True)
class GuiFlags:
    """gui: episodes at a screen."""

    parallel_envs: int = flag(
        16, "episodes at a time", env=("PARALLEL_ENVS", "GUI_TRAJECTORY_CONCURRENCY"), least=1
    )
    gui_max_steps: int = flag(
        15, "turns of the model in one episode", env=("GUI_MAX_STEPS", "MAX_STEPS"), least=1
    )
    screenshot_backend: Backend = flag(  # noqa: RUF009
        "playwright",
        "who shows the screen: one Chromium for all episodes (playwright), one for each (selenium), or a desktop with "
        "programs for each (xvfb)",
        env=("SCREENSHOT_BACKEND",),
    )
    gui_observation_type: ObservationType = flag(  # noqa: RUF009
        "a11y_tree",
        "what the model is shown: the accessibility tree as text, a picture, or both",
        env=("GUI_OBSERVATION_TYPE",),
    )
    gui_coordinate_type: Literal["relative", "absolute", "tags"] = flag(
        "relative",
        "places in actions: 0 to 999 over the screen, pixels, or numbers of elements of the tree",
        env=("GUI_COORDINATE_TYPE",),
    )
    gui_screen_width: int = flag(1280, "pixels", env=("GUI_SCREEN_WIDTH",), least=200, most=4096)
    gui_screen_height: int = flag(800, "pixels", env=("GUI_SCREEN_HEIGHT",), least=200, most=4096)
    gui_tasks_dir: str | None = flag(
        None,
        "folder of tasks in OSWorld's JSON, DOMAIN/ID.json, for rows that name them",
        env=("GUI_TEST_CONFIG_BASE_DIR",),
    )
    gui_tree_chars: int = flag(6000, "of the accessibility tree that is shown at most", least=200)
    gui_wait_after_reset: float = flag(
        0.0, "seconds before the first look", env=("GUI_WAIT_AFTER_RESET",), least=0
    )
    gui_sleep_after_execution: float = flag(
        0.0, "seconds after each action", env=("GUI_SLEEP_AFTER_EXECUTION",), least=0
    )
    gui_eval_max_steps: int | None = flag(
        None, "the same of an evaluation (default: --gui-max-steps)", env=("GUI_EVAL_MAX_STEPS",), least=1
    )
    gui_eval_wait_after_reset: float | None = flag(
        None,
        "the same of an evaluation (default: --gui-wait-after-reset)",
        env=("GUI_EVAL_WAIT_AFTER_RESET",),
        least=0,
    )
    gui_eval_sleep_after_execution: float | None = flag(
        None,
        "the same of an evaluation (default: --gui-sleep-after-execution)",
        env=("GUI_EVAL_SLEEP_AFTER_EXECUTION",),
        least=0,
    )
    gui_max_image_history_length: int | None = flag(
        None,
        "pictures of the screen that the model still sees, the newest ones, with one sample a turn (default: all, in one "
        "sample an episode)",
        env=("GUI_MAX_IMAGE_HISTORY_LENGTH",),
        least=1,
    )
    gui_result_dir: str | None = flag(
        None,
        "folder of recordings: a picture of each turn, and pages that show them",
        env=("GUI_RESULT_DIR",),
    )
    env_server_url: str | None = flag(
        None,
        "address of a pool of screens, or of a router over several",
        env=("GUI_ENV_SERVER_URL", "ENV_SERVER_URL"),
    )
    env_server_key: str | None = flag(None, "key of that pool", env=("GUI_ENV_SERVER_KEY", "ENV_SERVER_KEY"))


FLAGS = (GuiFlags,)
