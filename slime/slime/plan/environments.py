"""The resources of agents' environments: memory, disk, cores.

slime does not contain environments, so the module of `--custom-generate-function-path` declares their resources:
`environment_use(args)` returns an `EnvironmentUse`. Without that function, they are not planned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slime.errors import ConfigError
from slime.plan.hardware import GIB
from slime.plugins import load_module

if TYPE_CHECKING:
    from slime.flags import Arguments

MIB = 1 << 20


@dataclass(frozen=True)
class EnvironmentUse:
    """Maximum resources that episodes use on the machine of the rollouts.

    Attributes:
        parallel: concurrent episodes.
        memory, disk: bytes of one episode.
        in_memory: whether its files are in memory too.
        cores: CPU cores that one episode may use.
    """

    parallel: int
    memory: int
    disk: int
    cores: float = 1.0
    in_memory: bool = False

    def line(self) -> str:
        """Returns the line of the plan about environments."""
        memory = self.memory + (self.disk if self.in_memory else 0)
        disk = 0 if self.in_memory else self.disk
        files = f"{self.disk // MIB} MiB of files in {'memory' if self.in_memory else 'a folder'}"
        return (
            f"envs     {self.parallel} at a time, each at most {self.memory // MIB} MiB of memory and {files}: "
            f"{self.parallel * memory / GIB:.0f} GiB of memory, {self.parallel * disk / GIB:.0f} GiB of disk, "
            f"{self.parallel * self.cores:g} cores"
        )


def environments_of(args: Arguments) -> EnvironmentUse | None:
    """Returns the use that the generate function's module declares; None if it declares none.

    Raises:
        ConfigError: it returns something else.
    """
    if args.custom_generate_function_path is None:
        return None
    use = getattr(load_module(args.custom_generate_function_path), "environment_use", None)
    environments = None if use is None else use(args)
    if not isinstance(environments, EnvironmentUse | None):
        raise ConfigError(
            f"environment_use of {args.custom_generate_function_path} must return an EnvironmentUse, "
            f"got {environments!r:.80}"
        )
    return environments
