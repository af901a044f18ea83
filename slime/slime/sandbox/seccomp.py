"""The system call filter of a sandbox, as a BPF program for the kernel (seccomp(2), bpf of linux/filter.h).

System calls that a task's code does not need, or that allowed escapes from containers before, fail with an error that
programs expect; nothing is killed. The network needs no filter, because the sandbox has none. Socket families that
ignore network namespaces are rejected (vsock reaches the host of a virtual machine).
"""

from __future__ import annotations

import errno
import functools
import platform
import struct
from dataclasses import dataclass

from slime.errors import ConfigError

ALLOW, REFUSE = 0x7FFF0000, 0x00050000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET, TIME
TERMINAL_REQUESTS = (0x5412, 0x541C)  # TIOCSTI types into the terminal, TIOCLINUX pastes into it
SOCKET_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink (needed by libc for addresses)
OTHER_ABI = 0x40000000  # x32 calls have this bit

# name: number on x86-64, on aarch64 (None: there is none)
REFUSED: dict[str, tuple[int, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "personality": (135, 92),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "lookup_dcookie": (212, 18),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
}
UNKNOWN = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435}
"""Numbers on both architectures. These calls fail as if the kernel lacked them, which programs can handle."""
UNCOUNTED: dict[str, tuple[int, int]] = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "vmsplice": (278, 75),  # one byte in a pipe keeps a page of 2 MiB that the process has unmapped
}
"""Numbers on x86-64 and aarch64 of calls that create memory of no process. They fail in the same way if no cgroup
counts that memory."""


@dataclass(frozen=True)
class Machine:
    """Properties of an architecture for the filter: its mark (linux/audit.h), and numbers of calls whose arguments are
    checked."""

    mark: int
    column: int
    clone: int
    ioctl: int
    socket: int


MACHINES = {
    "x86_64": Machine(0xC000003E, 0, clone=56, ioctl=16, socket=41),
    "aarch64": Machine(0xC00000B7, 1, clone=220, ioctl=29, socket=198),
}


@functools.cache
def seccomp_filter(machine: str = platform.machine(), counted: bool = True) -> bytes:
    """Returns the program: instructions of 8 bytes. Calls of other architectures are rejected.

    Args:
        counted: whether a cgroup counts memory of no process; otherwise calls that create such memory are rejected.

    Raises:
        ConfigError: the filter does not know this machine's system calls.
    """
    if machine not in MACHINES:
        raise ConfigError(
            f"the sandbox's filter of system calls supports {' and '.join(MACHINES)}, not {machine}"
        )
    about = MACHINES[machine]
    program = [_load(ARCHITECTURE), _if(EQUAL, about.mark, skip=1), _refuse(errno.EPERM)]
    program += [_load(NUMBER), _if(AT_LEAST, OTHER_ABI, skip=0, otherwise=1), _refuse(errno.ENOSYS)]
    for numbers in REFUSED.values():
        if (number := numbers[about.column]) is not None:
            program += [_if(EQUAL, number, skip=0, otherwise=1), _refuse(errno.EPERM)]
    uncounted = [] if counted else [numbers[about.column] for numbers in UNCOUNTED.values()]
    for number in (*UNKNOWN.values(), *uncounted):
        program += [_if(EQUAL, number, skip=0, otherwise=1), _refuse(errno.ENOSYS)]
    flags = [_if(ANY_BIT, NAMESPACE_FLAGS, skip=0, otherwise=1), _refuse(errno.EPERM)]
    program += _call(about.clone, 0, flags)
    requests: list[bytes] = []
    for request in TERMINAL_REQUESTS:
        requests += [_if(EQUAL, request, skip=0, otherwise=1), _refuse(errno.EPERM)]
    program += _call(about.ioctl, 1, requests)
    last = len(SOCKET_FAMILIES) - 1
    families = [_if(EQUAL, family, skip=last - at + 1) for at, family in enumerate(SOCKET_FAMILIES)]
    program += _call(about.socket, 0, [*families, _refuse(errno.EAFNOSUPPORT)])
    return b"".join([*program, _return(ALLOW)])


def _call(number: int, argument: int, rules: list[bytes]) -> list[bytes]:
    """Returns the rules for one call, by the lower half of an argument; other values are allowed."""
    body = [_load(ARGUMENTS + 8 * argument), *rules, _return(ALLOW)]
    return [_if(EQUAL, number, skip=0, otherwise=len(body)), *body]


def _load(offset: int) -> bytes:
    return struct.pack("<HBBI", LOAD, 0, 0, offset)


def _if(test: int, value: int, skip: int, otherwise: int = 0) -> bytes:
    """Returns an instruction that skips `skip` instructions if the loaded word passes the test, else `otherwise`."""
    return struct.pack("<HBBI", test, skip, otherwise, value)


def _refuse(error: int) -> bytes:
    return _return(REFUSE | error)


def _return(value: int) -> bytes:
    return struct.pack("<HBBI", RETURN, 0, 0, value)
