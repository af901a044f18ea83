"""Gemini CLI and Qwen Code, which is a fork of it, over /v1/chat/completions.

The first message describes the environment. If the model only announces an action, or repeats itself, the client
sends a user message, mostly after `System:`.
"""

from __future__ import annotations

from openclaw.clients.client import Client, Own, SideMark

GEMINI_CLI = Client(
    name="gemini-cli",
    own=(
        Own("This is the Gemini CLI. We are setting up"),
        Own("This is the Qwen Code. We are setting up"),
        Own("Here is the user's editor context as a JSON object"),
        Own("Here is a summary of changes in the user's editor context"),
        Own("Please continue.", whole=True),
        Own("You have exceeded the time limit."),
        Own("First, reason in your scratchpad."),
        Own("Analyze *only* the content and structure of your immediately preceding response"),
    ),
    side_marks=(
        SideMark("next speaker", "last", "Analyze *only* the content and structure of your"),
        SideMark("compression", "last", "First, reason in your scratchpad."),
    ),
)
