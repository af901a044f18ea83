"""Environments that others wrote, unchanged: verifiers tasksets in a Python of their own, OpenEnv servers."""

from slime.agents.foreign.openenv import OpenEnvEnvironment
from slime.agents.foreign.verifiers import VerifiersEnvironments

__all__ = ["OpenEnvEnvironment", "VerifiersEnvironments"]
