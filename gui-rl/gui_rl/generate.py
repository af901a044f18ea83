"""The hooks of GUI agents: the generate function, and what is checked before a run begins."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claw_base.settings.declare import read
from gui_rl.actions import Coordinates
from gui_rl.chromium import ScreenSize
from gui_rl.environment import GuiEnvironment, GuiSettings
from gui_rl.flags import FLAGS, GuiFlags
from gui_rl.reading import GuiFormat
from gui_rl.surroundings import Backend, Surroundings, require_backend
from slime.agents import Environment, EpisodeLimits, agent
from slime.agents.generate import Generate
from slime.errors import ConfigError
from slime.plan.environments import MIB, EnvironmentUse
from slime.pool import PoolEnvironment
from slime.types import Sample
from slime.vision.reading import load_reader

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

__all__ = ["FLAGS", "environment_use", "generate", "settings_of", "start"]
MEMORY: Mapping[Backend, int] = {"playwright": 150 * MIB, "selenium": 300 * MIB, "xvfb": 400 * MIB}
"""Of one episode: a renderer of the one Chromium; a whole one; a desktop."""
PAGE_DISK = 20 * MIB
"""Of its profile."""


async def generate(
    args: GenerationSide, sample: Sample, sampling_params: dict[str, Any], evaluation: bool = False
) -> Sample | list[Sample]:
    """One episode. The reward is {"score": 1 or -1, "acc": solved}, so the run needs --reward-key score."""
    flags = read(GuiFlags, args)
    run = _function(in_evaluation(flags) if evaluation else flags)
    return await run(args, sample, sampling_params, evaluation)


def environment_use(args: GenerationSide) -> EnvironmentUse | None:
    """For the plan: what a page takes, for each episode at a time; None where a pool has them."""
    flags = read(GuiFlags, args)
    use = EnvironmentUse(flags.parallel_envs, MEMORY[flags.screenshot_backend], PAGE_DISK, 0.5)
    return use if flags.env_server_url is None else None


def start(args: GenerationSide, endpoints: object) -> Sequence[Any]:
    """For --service-path: refuses a run that could play no episode; it starts no process.

    Raises:
        ConfigError: pictures are asked for of a model that does not see, or of engines that take none; there is no
            browser, or no folder of tasks (a pool elsewhere has its own).
    """
    flags = read(GuiFlags, args)
    if flags.gui_observation_type != "a11y_tree":
        _check_sight(args, f"--gui-observation-type {flags.gui_observation_type} (GUI_OBSERVATION_TYPE)")
    if flags.env_server_url is None:
        require_backend(flags.screenshot_backend)
        if flags.gui_tasks_dir is not None and not Path(flags.gui_tasks_dir).is_dir():
            raise ConfigError(
                f"--gui-tasks-dir (GUI_TEST_CONFIG_BASE_DIR) {flags.gui_tasks_dir} is no folder"
            )
    return []


def _check_sight(args: GenerationSide, asked: str) -> None:
    if args.rollout_backend not in ("embedded", "sglang"):
        raise ConfigError(
            f"{asked}: --rollout-backend {args.rollout_backend} takes no pictures; embedded and sglang do"
        )
    try:
        load_reader(args.hf_checkpoint, args.run_dir)
    except ConfigError as error:
        raise ConfigError(f"{asked}: {error}") from error


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
    """Shared by training and evaluation."""
    return Surroundings(ScreenSize(width, height), backend)


def in_evaluation(flags: GuiFlags) -> GuiFlags:
    """With the limits and waits of evaluations in the place of those of training."""
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
