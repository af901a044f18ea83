"""Boxes in which code that a model wrote runs; without bubblewrap none of it runs."""

from slime.agents.sandbox.box import Box, require_sandbox
from slime.agents.sandbox.images import Image, image_of
from slime.agents.sandbox.limits import Limits
from slime.agents.sandbox.python_session import PythonSession, Ran
from slime.agents.sandbox.shell import Finished, Shells, Shown, run
from slime.agents.sandbox.workspace import Workspace

__all__ = [
    "Box",
    "Finished",
    "Image",
    "Limits",
    "PythonSession",
    "Ran",
    "Shells",
    "Shown",
    "Workspace",
    "image_of",
    "require_sandbox",
    "run",
]
