"""OpenHands, over /v1/chat/completions.

If the person does not answer, it asks the agent to continue by itself. Without native tool calls, observations come
in the user role.
"""

from __future__ import annotations

from openclaw.clients.client import Client, Own, SideMark

_SUMMARY = "You are maintaining a context-aware state summary for an interactive agent."

OPENHANDS = Client(
    name="openhands",
    own=(
        Own(_SUMMARY),
        Own("Please continue working on the task on whatever approach"),
        Own("Please continue on whatever approach"),
        Own("If you want to give up, run: <execute_bash>"),
        Own("I've uploaded a python code repository in the directory"),
    ),
    side_marks=(SideMark("summary", "last", _SUMMARY),),
)
