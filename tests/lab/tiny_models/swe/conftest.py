"""A small repository, and pytest for boxes, as the SWE track's own tests have them."""

from tests.swe_rl.conftest import environments, instance, repository

__all__ = ["environments", "instance", "repository"]
