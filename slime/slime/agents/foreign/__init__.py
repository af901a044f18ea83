"""Third-party environments, unchanged: verifiers tasksets in a separate Python, OpenEnv servers."""

from slime.agents.foreign.openenv import OpenEnvEnvironment
from slime.agents.foreign.verifiers import VerifiersEnvironments

__all__ = ["OpenEnvEnvironment", "VerifiersEnvironments"]
