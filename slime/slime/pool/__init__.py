"""Environments over HTTP: a service on each host, a router for several, and a client that implements an
environment."""

from slime.pool.client import PoolEnvironment, local_pool

__all__ = ["PoolEnvironment", "local_pool"]
