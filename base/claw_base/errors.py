"""The errors that runtime and trainer share. A message names the fault, its place, and the remedy."""

from __future__ import annotations


class ClawError(Exception):
    """Base of every error that this project raises deliberately."""


class ConfigError(ClawError):
    """Flags, environment variables or files that cannot work; raised at start with a one-line remedy."""

    refusal = True
    """The trainer reports it without the name of the hook that raised it."""


class OrderError(ClawError):
    """An order about a weight version cannot be placed because another one is pending."""
