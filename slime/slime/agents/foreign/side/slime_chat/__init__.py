"""A harness for verifiers that starts no program: its loop runs in this process, including the task's tools."""

from slime_chat.harness import ChatHarness

__all__ = ["ChatHarness"]
