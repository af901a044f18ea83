"""The environment of one episode: a fresh screen, the agent's actions on it, and the final score."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gui_rl.episode.reading import actions_of
from gui_rl.episode.surroundings import Surroundings
from gui_rl.recording import Recording
from gui_rl.scoring.getters import get
from gui_rl.scoring.metrics import score, together
from gui_rl.scoring.setup_steps import make
from gui_rl.scoring.task import GuiTask, task_of
from gui_rl.screens.actions import Coordinates, Finish, GuiAction, Point, Wait, resolved
from gui_rl.screens.protocol import OpenScreen
from gui_rl.screens.sites import SiteServer, Visit
from gui_rl.screens.tree import as_text
from slime.agents import Action, Observation, Outcome, Start, Task
from slime.agents.protocol import Message
from slime.agents.tool_calls import CallError

ObservationType = Literal["a11y_tree", "screenshot", "screenshot_a11y_tree"]


@dataclass(frozen=True)
class GuiSettings:
    """Settings of all episodes of a run.

    Attributes:
        tasks_dir: folder of the tasks that prompt rows refer to.
        observation: what the model sees.
        tree_chars: most characters of the accessibility tree in a turn.
        wait_after_reset, sleep_after_action: seconds.
        results: folder of recordings; None: no recordings.
    """

    tasks_dir: Path | None = None
    observation: ObservationType = "a11y_tree"
    unit: Coordinates = field(default_factory=Coordinates)
    tree_chars: int = 6000
    wait_after_reset: float = 0.0
    sleep_after_action: float = 0.0
    results: Path | None = None


class GuiEnvironment:
    """One episode."""

    def __init__(self, settings: GuiSettings, surroundings: Surroundings) -> None:
        self.settings, self.surroundings = settings, surroundings
        self.task: GuiTask | None = None
        self.visit: Visit | None = None
        self.screen: OpenScreen | None = None
        self.sites: SiteServer | None = None
        self.finish: Finish | None = None
        self.recording: Recording | None = None
        self.places: list[Point] = []
        self.acted = 0

    async def reset(self, task: Task) -> Start:
        """Starts the task. Raises TaskError, EnvironmentAway."""
        self.task = task_of(task, self.settings.tasks_dir)
        browser = self.surroundings.here()
        self.sites = await browser.ready()
        self.visit = self.sites.begin(self.task.pages)
        self.screen = await browser.screen(self.visit)
        await make(self.screen, self.task.config)
        await asyncio.sleep(self.settings.wait_after_reset)
        if (results := self.settings.results) is not None:
            self.recording = Recording(results, self.task.domain, self.task.name, self.task.instruction)
        return Start([system_message(self.settings.unit), await self._look(self.task.instruction)])

    async def step(self, action: Action) -> Observation:
        """Carries out the actions of a turn in order, until one of them ends the episode."""
        try:
            actions = [resolved(one, self.places) for one in actions_of(action.calls, self.settings.unit)]
        except CallError as error:
            return Observation([await self._look(f"Error: {error}")])
        if self.recording is not None and self.screen is not None:
            await asyncio.to_thread(self.recording.turn, await self.screen.png(), action.text, actions)
        for one in actions:
            if isinstance(one, Finish):
                self.finish = one
                return Observation(done=True)
            await self._do(one)
        return Observation([await self._look()])

    async def _do(self, action: GuiAction) -> None:
        assert self.screen is not None
        self.acted += 1
        if isinstance(action, Wait):
            await asyncio.sleep(action.seconds)
        else:
            await self.screen.act(action)
            await asyncio.sleep(self.settings.sleep_after_action)

    async def _look(self, before: str = "") -> Message:
        assert self.screen is not None
        tree = png = None
        if self.settings.observation != "screenshot":
            shown = await self.screen.shown(self.settings.unit)
            unit = self.settings.unit
            self.places = [unit.point(one.x, one.y) for one in shown.elements]
            tree = as_text(shown.elements, shown.notes, self.settings.tree_chars, unit.tags)
        if self.settings.observation != "a11y_tree":
            png = await self.screen.png()
        return screen(tree, png, before)

    async def evaluate(self) -> Outcome:
        """Returns +1 for a solved task, else -1. An infeasible task is solved only if the agent declares it
        infeasible; running out of turns does not count. An agent that gives up fails every feasible task, whatever
        the screen shows."""
        assert self.task is not None
        gave_up = self.finish is not None and not self.finish.success
        if self.task.infeasible or gave_up:
            score = float(self.task.infeasible and gave_up)
        else:
            score = await self._checked(self.task)
        details = {"gui_score": score, "gave_up": float(gave_up), "actions": self.acted}
        outcome = Outcome(1.0 if score == 1.0 else -1.0, score == 1.0, details)
        if self.recording is not None and self.screen is not None:
            await asyncio.to_thread(self.recording.end, await self.screen.png(), outcome)
        return outcome

    async def _checked(self, task: GuiTask) -> float:
        assert self.screen is not None and self.visit is not None
        await make(self.screen, task.postconfig)
        scores = []
        for check in task.checks:
            result = await get(self.screen, self.visit, check.result)
            expected = await get(self.screen, self.visit, check.expected)
            scores.append(score(check.func, result, expected, check.options))
        return together(scores, task.conj)

    async def close(self) -> None:
        if self.screen is not None:
            await self.screen.close()
        if self.sites is not None and self.visit is not None:
            self.sites.end(self.visit)


SYSTEM = """You use a computer. You get a task and see the screen; each turn you act once, then you see the screen again.
Coordinates are {coordinates}. Actions are lines of Python:
pyautogui.click(x, y)            also doubleClick, tripleClick, rightClick, middleClick, moveTo
pyautogui.dragTo(x, y)           from where the pointer is
pyautogui.write("text")          into what has the focus
pyautogui.press("enter")         pyautogui.hotkey("ctrl", "a")
pyautogui.scroll(-300, x, y)     down; hscroll for sideways
WAIT                             to look again
DONE                             the task is done
FAIL                             it cannot be done
or one call of the function computer_use in <tool_call></tool_call>, as JSON with name and arguments: \
action (key, type, mouse_move,
left_click, left_click_drag, right_click, middle_click, double_click, triple_click, scroll, hscroll, wait, terminate),
coordinate, text, keys, pixels, time, status."""
RELATIVE = "0 to 999 from left to right and from top to bottom"
TAGGED = "tags, such as pyautogui.click(tag_3) for the element that the screen calls tag_3"
ABSOLUTE = "pixels of a screen that is {width} wide and {height} high"


def system_message(unit: Coordinates) -> Message:
    """Returns the system prompt, with the unit of coordinates."""
    coordinates = RELATIVE if unit.relative else ABSOLUTE.format(width=unit.width, height=unit.height)
    coordinates = TAGGED if unit.tags else coordinates
    return {"role": "system", "content": SYSTEM.format(coordinates=coordinates)}


def screen(tree: str | None, png: bytes | None, before: str = "") -> Message:
    """Returns a message that shows the screen: the tree as text, the picture as a data URL, or both.

    Args:
        before: the task, or the error of the last action.
    """
    text = before if tree is None else f"{before}\n{tree}".lstrip("\n")
    if png is None:
        return {"role": "user", "content": text}
    url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}}]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text or "The screen now."}]}
