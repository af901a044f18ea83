"""A small repository, and pytest for sandboxes, as in the SWE track's tests."""

from tests.swe_rl.conftest import environments, instance, repository

__all__ = ["environments", "instance", "repository"]
