"""Cline, and its relatives Roo Code and Kilo Code, over /v1/chat/completions.

Without native tool calls, results of tools come in the user role after a bracket with the tool's name. A person's
reply to a question or a result is between tags inside such a text.
"""

from __future__ import annotations

from openclaw.clients.client import Client, Own

CLINE = Client(
    name="cline",
    session_headers=("x-task-id", "x-roo-task-id", "x-kilocode-taskid"),
    own=(
        Own("Missing value for required parameter '"),
        Own("Invalid JSON argument used with "),
        Own("The tool execution failed with the following error:", tool=True),
        Own("The user denied this operation."),
        Own("You seem to be having trouble proceeding."),
        Own("Tool [", tool=True),
        Own("The content was successfully saved to ", tool=True),
        Own("# Conventional Commit Message Generator"),
    ),
)
