"""Agents in environments: the protocol of an environment, and episodes that become trajectories."""

from slime.agents.episode import EpisodeLimits
from slime.agents.generate import agent
from slime.agents.protocol import (
    Action,
    Environment,
    Message,
    Observation,
    Outcome,
    Start,
    Step,
    Task,
    Tool,
    ToolCall,
)
from slime.agents.python_tool import PYTHON, PythonTool

__all__ = [
    "PYTHON",
    "Action",
    "Environment",
    "EpisodeLimits",
    "Message",
    "Observation",
    "Outcome",
    "PythonTool",
    "Start",
    "Step",
    "Task",
    "Tool",
    "ToolCall",
    "agent",
]
