"""Tests the filter of system calls in an emulation of the kernel: the rejected calls, and their errors."""

from __future__ import annotations

import errno
import struct

import pytest

from slime.errors import ConfigError
from slime.sandbox.seccomp import MACHINES, REFUSED, UNCOUNTED, UNKNOWN, seccomp_filter

ALLOWED = None


def decided(
    machine: str, number: int, *arguments: int, mark: int | None = None, counted: bool = True
) -> int | None:
    """Returns the error of a call by the program; None: it is allowed."""
    call = struct.pack(
        "<IIQ6Q", number, mark or MACHINES[machine].mark, 0, *arguments, *[0] * (6 - len(arguments))
    )
    program = list(struct.iter_unpack("<HBBI", seccomp_filter(machine, counted)))
    at = word = 0
    while True:
        operation, then, otherwise, value = program[at]
        at += 1
        if operation == 0x06:
            return ALLOWED if value == 0x7FFF0000 else value & 0xFFFF
        if operation == 0x20:
            word = struct.unpack_from("<I", call, value)[0]
        else:
            passed = {0x15: word == value, 0x35: word >= value, 0x45: bool(word & value)}[operation]
            at += then if passed else otherwise


@pytest.mark.parametrize("machine", MACHINES)
def test_each_refused_call_gets_an_error_and_is_not_killed(machine: str) -> None:
    about = MACHINES[machine]
    for name, numbers in REFUSED.items():
        if (number := numbers[about.column]) is not None:
            assert decided(machine, number) == errno.EPERM, name
    for name, number in UNKNOWN.items():
        assert decided(machine, number) == errno.ENOSYS, name


@pytest.mark.parametrize("machine", MACHINES)
def test_unaccounted_memory_calls_are_refused_only_without_a_cgroup(machine: str) -> None:
    for name, numbers in UNCOUNTED.items():
        number = numbers[MACHINES[machine].column]
        assert decided(machine, number, counted=False) == errno.ENOSYS, name
        assert decided(machine, number, counted=True) is ALLOWED, name


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_are_refused_only_with_escaping_arguments(machine: str) -> None:
    about = MACHINES[machine]
    assert decided(machine, about.clone, 0x11) is ALLOWED  # a fork
    assert decided(machine, about.clone, 0x3D0F00) is ALLOWED  # a thread
    for flag in (0x00020000, 0x02000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
        assert decided(machine, about.clone, flag | 17) == errno.EPERM
    assert decided(machine, about.ioctl, 0, 0x5401) is ALLOWED  # TCGETS
    assert decided(machine, about.ioctl, 0, 0x5412) == errno.EPERM
    # The kernel checks the low half too
    assert decided(machine, about.ioctl, 0, 0xFFFFFFFF00005412) == errno.EPERM
    assert [family for family in range(50) if decided(machine, about.socket, family) is ALLOWED] == [
        1,
        2,
        10,
        16,
    ]
    assert decided(machine, about.socket, 40) == errno.EAFNOSUPPORT


def test_calls_of_another_architecture_are_refused() -> None:
    assert decided("x86_64", 20, mark=0x40000003) == errno.EPERM  # i386
    assert decided("x86_64", 0x40000000 + 101) == errno.ENOSYS  # x32
    assert decided("x86_64", 0) is ALLOWED and decided("aarch64", 63) is ALLOWED


def test_an_unknown_machine_architecture_is_rejected() -> None:
    with pytest.raises(ConfigError, match="not riscv64"):
        seccomp_filter("riscv64")
