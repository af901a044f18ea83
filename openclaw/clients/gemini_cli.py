"""Gemini CLI and Qwen Code, which is a fork of it, over /v1/chat/completions.

The first message describes the environment. If the model only announces an action, or repeats itself, the client
sends a user message, mostly after `System:`. After an answer Qwen Code lets the model update its memory, with the same
messages and another system prompt.
"""

from __future__ import annotations

from openclaw.clients.client import Client, Own, SideMark

_HELPERS = (
    "You are performing a managed memory dream",
    "You are reviewing this conversation to extract reusable skills.",
    "You are selecting memories that will be useful to ",
    "You are a forked worker process.",
    "You are a file search specialist agent.",
    "You are a specialized context summarizer",
    "You are a security classifier for an AI coding agent",
    "You are an independent Goal Verifier.",
    "You are acting as an ADVISOR",
    "You are assisting a text-only coding assistant",
    "You generate session recaps for a programming assistant",
    "You clean up raw speech-to-text",
    "Generate a concise, sentence-case title (3-7 words)",
    "Write a short summary label describing what these tool calls accomplished.",
)
"""System prompts of Qwen Code's own requests."""

GEMINI_CLI = Client(
    name="gemini-cli",
    own=(
        Own("This is the Gemini CLI. We are setting up"),
        Own("This is the Qwen Code. We are setting up"),
        Own("Here is the user's editor context as a JSON object"),
        Own("Here is a summary of changes in the user's editor context"),
        Own("Please continue.", whole=True),
        Own("Please provide the final result now and stop calling tools.", whole=True),
        Own("[Message from parent agent]:"),
        Own("Host-confirmed user answer:\n"),
        Own("I ran the following shell command:\n"),
        Own("Recently accessed file (full current content embedded):"),
        Own("The session's working directory has changed from "),
        Own("User launched a background fork via /fork."),
        Own("You have exceeded the time limit."),
        Own("First, reason in your scratchpad."),
        Own("Analyze *only* the content and structure of your immediately preceding response"),
    ),
    side_marks=(
        SideMark("next speaker", "last", "Analyze *only* the content and structure of your"),
        SideMark("compression", "last", "First, reason in your scratchpad."),
        SideMark("suggestion", "last", "[SUGGESTION MODE:"),
        *(SideMark("helper", "system", begins) for begins in _HELPERS),
    ),
)
