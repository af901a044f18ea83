"""A harness of verifiers that starts no program: its loop runs in this process, tools of the task included."""

from slime_chat.harness import ChatHarness

__all__ = ["ChatHarness"]
