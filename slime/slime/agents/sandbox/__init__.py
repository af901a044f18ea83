"""Boxes in which code that a model wrote runs; without bubblewrap none of it runs."""

from slime.agents.sandbox.box import Box, require_sandbox
from slime.agents.sandbox.limits import Limits
from slime.agents.sandbox.python_session import PythonSession, Ran

__all__ = ["Box", "Limits", "PythonSession", "Ran", "require_sandbox"]
