"""Hooks of GUI agents: flags, the generate function, and checks before a run starts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from claw_base.settings.declare import flag, read
from gui_rl.episode.environment import GuiEnvironment, GuiSettings, ObservationType
from gui_rl.episode.reading import GuiFormat
from gui_rl.episode.surroundings import Backend, Surroundings, require_backend
from gui_rl.screens.actions import Coordinates
from gui_rl.screens.protocol import ScreenSize
from slime.agents import Environment, EpisodeLimits, agent
from slime.agents.generate import Generate
from slime.errors import ConfigError
from slime.plan.environments import MIB, EnvironmentUse
from slime.pool import PoolEnvironment
from slime.pool.keys import check_address
from slime.types import Sample
from slime.vision.reading import load_reader

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

__all__ = ["FLAGS", "environment_use", "generate", "settings_of", "start"]
MEMORY: Mapping[Backend, int] = {"playwright": 150 * MIB, "selenium": 300 * MIB, "xvfb": 400 * MIB}
"""Memory of one episode by backend: a renderer of a shared Chromium; a whole Chromium; a desktop."""
PAGE_DISK = 20 * MIB
"""Disk space of an episode's browser profile."""


@dataclass(frozen=True)
class GuiFlags:
    """gui: episodes at a screen."""

    parallel_envs: int = flag(
        16, "concurrent episodes", env=("PARALLEL_ENVS", "GUI_TRAJECTORY_CONCURRENCY"), least=1
    )
    gui_max_steps: int = flag(
        15, "turns of the model in one episode", env=("GUI_MAX_STEPS", "MAX_STEPS"), least=1
    )
    screenshot_backend: Backend = flag(
        "playwright",
        "screen: playwright (one Chromium for all episodes), selenium (one each) or xvfb (a desktop each)",
        env=("SCREENSHOT_BACKEND",),
    )
    gui_observation_type: ObservationType = flag(
        "a11y_tree",
        "observation of the model: the accessibility tree as text, a screenshot, or both",
        env=("GUI_OBSERVATION_TYPE",),
    )
    gui_coordinate_type: Literal["relative", "absolute", "tags"] = flag(
        "relative",
        "coordinates in actions: 0 to 999, pixels, or element numbers of the tree",
        env=("GUI_COORDINATE_TYPE",),
    )
    gui_screen_width: int = flag(
        1280, "width of the screen, pixels", env=("GUI_SCREEN_WIDTH",), least=200, most=4096
    )
    gui_screen_height: int = flag(
        800, "height of the screen, pixels", env=("GUI_SCREEN_HEIGHT",), least=200, most=4096
    )
    gui_tasks_dir: str | None = flag(
        None,
        "folder of tasks in OSWorld's JSON (DOMAIN/ID.json) that prompt rows name",
        env=("GUI_TEST_CONFIG_BASE_DIR",),
    )
    gui_tree_chars: int = flag(
        6000, "maximum characters of the accessibility tree in an observation", least=200
    )
    gui_wait_after_reset: float = flag(
        0.0, "seconds before the first observation", env=("GUI_WAIT_AFTER_RESET",), least=0
    )
    gui_sleep_after_execution: float = flag(
        0.0, "seconds after each action", env=("GUI_SLEEP_AFTER_EXECUTION",), least=0
    )
    gui_eval_max_steps: int | None = flag(
        None,
        "turns of the model in an evaluation episode (default: --gui-max-steps)",
        env=("GUI_EVAL_MAX_STEPS",),
        least=1,
    )
    gui_eval_wait_after_reset: float | None = flag(
        None,
        "seconds before the first observation in evaluations (default: --gui-wait-after-reset)",
        env=("GUI_EVAL_WAIT_AFTER_RESET",),
        least=0,
    )
    gui_eval_sleep_after_execution: float | None = flag(
        None,
        "seconds after each action in evaluations (default: --gui-sleep-after-execution)",
        env=("GUI_EVAL_SLEEP_AFTER_EXECUTION",),
        least=0,
    )
    gui_max_image_history_length: int | None = flag(
        None,
        "newest screenshots in the prompt; needs one sample per turn (default: all)",
        env=("GUI_MAX_IMAGE_HISTORY_LENGTH",),
        least=1,
    )
    gui_result_dir: str | None = flag(
        None,
        "folder of recordings: a screenshot of each turn, and HTML pages that show them",
        env=("GUI_RESULT_DIR",),
    )
    env_server_url: str | None = flag(
        None,
        "address of a screen pool, or of a router over several",
        env=("GUI_ENV_SERVER_URL", "ENV_SERVER_URL"),
    )
    env_server_key: str | None = flag(None, "key of that pool", env=("GUI_ENV_SERVER_KEY", "ENV_SERVER_KEY"))


FLAGS = (GuiFlags,)


async def generate(
    args: GenerationSide, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> Sample | list[Sample]:
    """Runs one episode. The reward is {"score": 1 or -1, "acc": solved}, so the run needs --reward-key score."""
    flags = read(GuiFlags, args)
    run = _function(in_evaluation(flags) if evaluation else flags)
    return await run(args, sample, sampling_params, evaluation)


def environment_use(args: GenerationSide) -> EnvironmentUse | None:
    """Returns the resources of concurrent episodes for the plan; None if a pool provides them."""
    flags = read(GuiFlags, args)
    use = EnvironmentUse(flags.parallel_envs, MEMORY[flags.screenshot_backend], PAGE_DISK, 0.5)
    return use if flags.env_server_url is None else None


def start(args: GenerationSide, endpoints: object) -> Sequence[Any]:
    """For --service-path: rejects a run whose episodes could not start; starts no process.

    Raises:
        ConfigError: screenshots are requested, but the model or the engines do not accept images; there is no
            browser, or no folder of tasks (a pool has its own).
    """
    check_arguments(args)
    flags = read(GuiFlags, args)
    if flags.gui_observation_type != "a11y_tree":
        try:
            load_reader(args.hf_checkpoint, args.run_dir)
        except ConfigError as error:
            raise ConfigError(f"{_asked(flags)}: {error}") from error
    if flags.env_server_url is None:
        require_backend(flags.screenshot_backend)
    return []


def check_arguments(args: GenerationSide, endpoints: object = None, env: object = None) -> None:
    """Raises ConfigError, also in a dry run, if engines do not accept the requested screenshots, or the folder of
    tasks is missing."""
    flags = read(GuiFlags, args)
    if flags.gui_observation_type != "a11y_tree" and args.rollout_backend not in ("embedded", "sglang"):
        raise ConfigError(
            f"{_asked(flags)}: --rollout-backend {args.rollout_backend} accepts no pictures; embedded and sglang do"
        )
    if flags.env_server_url is not None:
        check_address("--env-server-url (GUI_ENV_SERVER_URL, ENV_SERVER_URL)", flags.env_server_url)
    folder = flags.gui_tasks_dir if flags.env_server_url is None else None
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError(f"--gui-tasks-dir (GUI_TEST_CONFIG_BASE_DIR) {folder} is not a folder")


def _asked(flags: GuiFlags) -> str:
    return f"--gui-observation-type {flags.gui_observation_type} (GUI_OBSERVATION_TYPE)"


@functools.lru_cache
def _function(flags: GuiFlags) -> Generate:
    settings, url = settings_of(flags), flags.env_server_url
    surroundings = _surroundings(flags.gui_screen_width, flags.gui_screen_height, flags.screenshot_backend)

    def environment() -> Environment:
        if url is not None:
            return PoolEnvironment(url, flags.env_server_key)
        return GuiEnvironment(settings, surroundings)

    kept = flags.gui_max_image_history_length
    limits = EpisodeLimits(turns=flags.gui_max_steps, pictures=kept)
    format = GuiFormat(settings.unit)
    return agent(environment, limits, parallel=flags.parallel_envs, format=format, per_turn=kept is not None)


@functools.lru_cache
def _surroundings(width: int, height: int, backend: Backend) -> Surroundings:
    """Returns the browsers, which training and evaluation share."""
    return Surroundings(ScreenSize(width, height), backend)


def in_evaluation(flags: GuiFlags) -> GuiFlags:
    """Returns the flags with the limits and waits of evaluations."""
    own = {
        "gui_max_steps": flags.gui_eval_max_steps,
        "gui_wait_after_reset": flags.gui_eval_wait_after_reset,
        "gui_sleep_after_execution": flags.gui_eval_sleep_after_execution,
    }
    return replace(flags, **{name: value for name, value in own.items() if value is not None})


def settings_of(flags: GuiFlags) -> GuiSettings:
    relative, tags = flags.gui_coordinate_type != "absolute", flags.gui_coordinate_type == "tags"
    return GuiSettings(
        tasks_dir=Path(flags.gui_tasks_dir) if flags.gui_tasks_dir else None,
        observation=flags.gui_observation_type,
        unit=Coordinates(relative, flags.gui_screen_width, flags.gui_screen_height, tags),
        tree_chars=flags.gui_tree_chars,
        wait_after_reset=flags.gui_wait_after_reset,
        sleep_after_action=flags.gui_sleep_after_execution,
        results=Path(flags.gui_result_dir) if flags.gui_result_dir else None,
    )
