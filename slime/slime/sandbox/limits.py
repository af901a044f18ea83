"""Limits of the processes in one sandbox."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one sandbox.

    Attributes:
        memory: bytes of address space of each process, and of resident memory of all processes together. Files in the
            sandbox are in memory too, but have their own limit.
        cpu_seconds: total processor time of each process.
        processes: concurrent processes and threads.
        file_bytes: size of one file, including the captured output.
        disk_bytes: size of all files below /tmp, which is also the home.
        open_files: descriptors of a process.
        address_space: bytes that each process may reserve, for programs that use little of it, such as browsers;
            None: `memory`.
        output_chars: characters of output that a call returns; the middle of longer output is omitted.
    """

    memory: int = 512 << 20
    cpu_seconds: int = 60
    processes: int = 32
    file_bytes: int = 16 << 20
    disk_bytes: int = 64 << 20
    open_files: int = 64
    output_chars: int = 4096
    address_space: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value < 1:
                raise ValueError(f"the limit {name} of a sandbox must be 1 or more, got {value}")
