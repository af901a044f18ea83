"""The errors that runtime and trainer share. Messages say what is wrong, where, and what to do."""

from __future__ import annotations


class ClawError(Exception):
    """Base of every error that this project raises on purpose."""


class ConfigError(ClawError):
    """Flags, environment variables or files that cannot work; raised at start, in one line that says what to do."""

    refusal = True
    """The trainer shows it without the name of the hook that raised it."""


class OrderError(ClawError):
    """An order about a weight version that cannot be placed, since another one waits."""
