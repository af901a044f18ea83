"""Torch computes in one thread, as in the trainer's tests."""

from tests.slime.conftest import one_thread

__all__ = ["one_thread"]
