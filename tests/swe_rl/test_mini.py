"""Tests the real mini-swe-agent with its own prompts, in slime's sandbox; a script replaces the model."""

from __future__ import annotations

import json

import pytest

from slime.agents import Action, Observation, Task
from slime.errors import ConfigError
from swe_rl.instance import Instance
from swe_rl.mini import MiniSweEnvironment, TextFormat
from swe_rl.mini.parts import configuration, tools_of

pytestmark = pytest.mark.usefixtures("environments")
REPAIR = "sed -i 's/result - number/result + number/' calc.py"


def called(command: str) -> Action:
    made = json.dumps({"name": "bash", "arguments": {"command": command}})
    text = f"THOUGHT: so.\n<tool_call>\n{made}\n</tool_call>"
    return Action(text, TextFormat().calls(text, ()))


def block(command: str) -> Action:
    return Action(f"THOUGHT: so.\n\n```mswea_bash_command\n{command}\n```")


async def played(environment: MiniSweEnvironment, *actions: Action) -> list[Observation]:
    return [await environment.step(action) for action in actions]


@pytest.mark.parametrize(("config", "write"), [("swebench", called), ("swebench_backticks", block)])
async def test_mini_swe_agents_loop_repairs_and_submits_a_patch(
    instance: Instance, config: str, write: type
) -> None:
    environment = MiniSweEnvironment(config)
    try:
        start = await environment.reset(Task("", metadata={"instance": instance.to_row()}))
        assert [one["role"] for one in start.messages] == ["system", "user"]
        assert instance.problem_statement in start.messages[1]["content"]
        assert [tool.name for tool in start.tools] == (["bash"] if write is called else [])
        seen = await played(
            environment,
            write("pwd; ls"),
            write(f"{REPAIR} && git diff -- calc.py > patch.txt"),
            write("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && cat patch.txt"),
        )
        role = "tool" if write is called else "user"
        assert seen[0].messages[0]["role"] == role and "/testbed\ncalc.py" in seen[0].messages[0]["content"]
        assert [one.done for one in seen] == [False, False, True]
        outcome = await environment.evaluate()
        assert outcome.solved and outcome.details["exit_status"] == "submitted"
        assert outcome.details["patch_source"] == "submission" and outcome.details["steps"] == 3
        assert "patch.txt" not in outcome.details["patch"]
    finally:
        await environment.close()


async def test_unparsable_answers_get_the_agents_error_and_the_third_ends_the_episode(
    instance: Instance,
) -> None:
    environment = MiniSweEnvironment("swebench")
    try:
        await environment.reset(Task("", metadata={"instance": instance.to_row()}))
        seen = await played(environment, *[Action("I am done.")] * 3)
        assert "Tool call error" in seen[0].messages[0]["content"] and seen[0].messages[0]["role"] == "user"
        assert [one.done for one in seen] == [False, False, True]
        outcome = await environment.evaluate()
        assert outcome.details["exit_status"] == "format_errors" and outcome.details["format_errors"] == 3
        assert not outcome.solved
    finally:
        await environment.close()


async def test_at_the_step_limit_the_current_changes_are_graded(instance: Instance) -> None:
    environment = MiniSweEnvironment("swebench", steps=1)
    try:
        await environment.reset(Task("", metadata={"instance": instance.to_row()}))
        [seen] = await played(environment, called(REPAIR))
        outcome = await environment.evaluate()
        assert seen.done and outcome.details["exit_status"] == "step_limit"
        assert outcome.solved and outcome.details["patch_source"] == "diff"
    finally:
        await environment.close()


async def test_closing_an_episode_ends_its_agent(instance: Instance) -> None:
    environment = MiniSweEnvironment("swebench")
    await environment.reset(Task("", metadata={"instance": instance.to_row()}))
    seat = environment.seat
    await environment.close()
    assert seat is not None and not seat.running


def test_an_invalid_configuration_is_rejected() -> None:
    with pytest.raises(ConfigError, match="SWE_CONFIG_PATH nothing"):
        configuration("nothing")
    assert [tool.name for tool in tools_of(configuration("swebench")["model"])] == ["bash"]
