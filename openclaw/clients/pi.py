"""Pi, over /v1/chat/completions.

It stores sessions in files and sends no session id. Its summaries are generated texts.
"""

from __future__ import annotations

from openclaw.clients.client import Client, Own

PI = Client(
    name="pi",
    own=(
        Own(
            "The conversation history before this point was compacted into the following summary:\n\n<summary>"
        ),
        Own("The following is a summary of a branch that this conversation came back from:\n\n<summary>"),
    ),
)
