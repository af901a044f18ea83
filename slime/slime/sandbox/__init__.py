"""Sandboxes for code written by models. Without bubblewrap, such code is not run."""

from slime.sandbox.box import Box, require_sandbox
from slime.sandbox.images import Image, image_of
from slime.sandbox.limits import Limits
from slime.sandbox.python_session import PythonSession, Ran
from slime.sandbox.shell import Finished, Shells, Shown, run
from slime.sandbox.workspace import Workspace

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
