"""Flags of this track, with variables of their own."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag
from toolcall_rl.rewards import Check


@dataclass(frozen=True)
class ToolcallFlags:
    """Tools, limits and rewards of an episode."""

    tools_config: str = flag(
        "", "tools, as a JSON file or as JSON (default: the Python interpreter)", env=("TOOLS_CONFIG",)
    )
    max_turns: int = flag(16, "answers of the model in an episode", env=("MAX_TURNS", "MAX_STEPS"), least=1)
    max_tool_calls: int = flag(16, "tool calls that are made in an episode; later ones are refused", least=0)
    parallel_envs: int = flag(32, "episodes at a time", env=("PARALLEL_ENVS",), least=1)
    answer_check: Check = flag(  # noqa: RUF009
        "math", "math: equal by number or algebra; strict: the very text of the label"
    )
    tool_encouragement: bool = flag(
        True, "a wrong answer is worth 0.05 more with each call, from -1.1 up to -0.6"
    )
    tool_call_price: float = flag(0.0, "reward that each call costs", least=0)


FLAGS: tuple[type, ...] = (ToolcallFlags,)
