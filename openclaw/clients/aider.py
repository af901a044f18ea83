"""Aider, over /v1/chat/completions.

It inserts files and a repository map into each request before the newest message, each followed by a
generated answer; neither is part of the history. It appends its rules for edits to the newest message and omits them
in the next request.
"""

from __future__ import annotations

from openclaw.clients.client import Client, From, Own, SideMark

_RULES = (
    "# *SEARCH/REPLACE block* Rules:",
    "# File editing rules:",
    "# V4A Diff Format Rules:",
    "To suggest changes to a file you MUST return the entire content of the updated file.\n",
)
"""How the rules begin; the last is the format for models that Aider does not know."""

AIDER = Client(
    name="aider",
    noise=tuple(From(f"\n\n{begins}") for begins in _RULES),
    own=(
        Own("# Fix any errors below, if possible.", tool=True),
        Own("The following lint errors were found in ", tool=True),
        Own("I ran this command:\n", tool=True),
        *(Own(f"# {count} SEARCH/REPLACE block", tool=True) for count in range(1, 10)),
        Own("I didn't see any properly formatted edits in your reply?!"),
        Own("I added these files to the chat:"),
        Own("I did `git reset --hard HEAD~1` to discard the last edits."),
        Own("I spoke to you previously about a number of things."),
    ),
    scaffold=(
        "I have *added these files to the chat*",
        "Here are summaries of some files present in my git repository.",
        "Here are some READ ONLY files, provided for your reference.",
        "I am not sharing any files ",
        "I am not sharing the full contents of any files with you yet.",
        "I am working with you on code in a git repository.\nHere are summaries of some files",
        "These files have been *added these files to the chat*",
        "These are some files we have been discussing that we may want to edit",
        "Below here are summaries of other files!",
        "Don't try and edit any existing code without asking me to add the files to the chat!",
        "I updated the files.",
        "I committed the changes with git hash ",
        "I edited the files myself.",
    ),
    side_marks=(
        SideMark("summary", "system", "*Briefly* summarize this partial conversation about programming."),
    ),
)
