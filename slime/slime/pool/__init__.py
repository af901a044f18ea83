"""Environments behind HTTP: a service on each host, a router over several, and the client, which is an environment."""

from slime.pool.client import PoolEnvironment, local_pool

__all__ = ["PoolEnvironment", "local_pool"]
