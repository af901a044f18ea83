"""Tests ways out of a sandbox, and attacks on its machine: none succeeds, and each ends in an error that names it."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.sandbox import Box, Limits, PythonSession, Shells, Workspace, run
from slime.sandbox.command import worker_python
from slime.sandbox.images import Image, image_of
from slime.sandbox.seccomp import MACHINES, REFUSED, UNKNOWN
from tests.slime.sandbox.images import open_folder, plain_tar, root_folder

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
SECONDS = 60.0  # for a call that ends by itself
SMALL = Limits(memory=256 << 20, processes=24, file_bytes=1 << 20, disk_bytes=4 << 20, output_chars=400)


@pytest.fixture(scope="module")
def session() -> Iterator[PythonSession]:
    with PythonSession(SMALL) as found:
        yield found


ATTEMPTS = {
    "host files": ("open('/root/.profile')", "FileNotFoundError"),
    "homes": ("import os; os.listdir('/home')", "FileNotFoundError"),
    "passwords": ("open('/etc/shadow')", "FileNotFoundError"),
    "a link to a host file": ("import os; os.symlink('/etc/passwd', 'l'); open('l')", "FileNotFoundError"),
    "a hard link to a program": ("import os; os.link('/usr/bin/env', '/tmp/env')", "OSError"),
    "writing to the system": ("open('/usr/x', 'w')", "OSError"),
    "writing to the root": ("open('/x', 'w')", "OSError"),
    "the terminal": ("open('/dev/tty')", "OSError"),
    "devices": ("import os; os.mknod('/tmp/d', 0o20666, os.makedev(1, 1))", "PermissionError"),
    "the network": ("import socket; socket.create_connection(('1.1.1.1', 53), 5)", "OSError"),
    "names": ("import socket; socket.getaddrinfo('example.org', 80)", "gaierror"),
    "signals to init": ("import os; os.kill(4000000, 9)", "ProcessLookupError"),
    "being root": ("import os; os.setuid(0)", "OSError"),
    "another root": ("import os; os.chroot('/tmp')", "PermissionError"),
    "sysctl": ("open('/proc/sys/kernel/core_pattern', 'w')", "PermissionError"),
    "sysrq": ("open('/proc/sysrq-trigger', 'w')", "Error"),
    "kernel memory": ("open('/proc/kcore', 'rb').read(1)", "Error"),
    "higher limits": (
        "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999))",
        "ValueError: not allowed to raise maximum limit",
    ),
    "memory of one process": ("bytearray(1 << 30)", "MemoryError"),
    "one large file": (
        "open('big', 'wb', 0).write(bytes(8 << 20)); open('big', 'ab', 0).write(b'x')",
        "OSError",
    ),
    "many files": (
        "for i in range(64): open(f'f{i}', 'wb', 0).write(bytes(1 << 19)) == 1 << 19 or 1 / 0",
        "Error",
    ),
    "too much output": ("for i in range(64): print('x' * (1 << 16), flush=True)", "OSError"),
    "many threads": (
        "import threading, time\nfor i in range(100): threading.Thread(target=time.sleep, args=(0.2,)).start()",
        "RuntimeError",
    ),
    "a fork bomb": (
        "import os, time\nfor i in range(100): os.fork() or (time.sleep(60), os._exit(0))",
        "BlockingIO",
    ),
    "root of another namespace": ("import os; os.listdir('/proc/1/root/home')", "FileNotFoundError"),
    "upwards from another's folder": ("import os; os.listdir('/proc/1/cwd/../home')", "Error"),
    "descriptors of init": ("import os; os.open('/proc/1/fd/0', os.O_RDONLY)", "PermissionError"),
    "a signal to a process of this machine": (f"import os; os.kill({os.getpid()}, 9)", "ProcessLookupError"),
    "a service of this machine": (
        "import socket; socket.create_connection(('127.0.0.1', 22), 5)",
        "ConnectionRefusedError",
    ),
    "credentials of a cloud": (
        "import socket; socket.create_connection(('169.254.169.254', 80), 5)",
        "unreachable",
    ),
    "the host of a virtual machine": (
        "import socket; socket.socket(40, socket.SOCK_STREAM)",
        "not supported",
    ),
    "raw packets": ("import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "PermissionError"),
    "packets of others": ("import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "OSError"),
    "kernel cryptography": ("import socket; socket.socket(38, 5)", "not supported"),
    "memory as a device": ("open('/dev/mem')", "FileNotFoundError"),
    "disks": ("import os; os.mknod('/tmp/disk', 0o60666, os.makedev(8, 0))", "PermissionError"),
    "messages of the kernel": ("open('/dev/kmsg')", "FileNotFoundError"),
    "own cgroup": ("import os; os.listdir('/sys/fs/cgroup')", "FileNotFoundError"),
    "a setuid program": (
        "import subprocess; subprocess.run(['su', '-c', 'id'], input=b'', check=True)",
        "Error",
    ),
    "a setuid file of root": (
        "import os, shutil\nshutil.copy('/usr/bin/id', 'x'); os.chmod('x', 0o4755); os.chown('x', 0, 0)",
        "Error",
    ),
    "ids of others": ("open('/proc/self/uid_map', 'wb', 0).write(b'0 0 1')", "PermissionError"),
    "a life longer than others": (
        "open('/proc/self/oom_score_adj', 'wb', 0).write(b'-1000')",
        "PermissionError",
    ),
    "a higher priority": ("import os; os.nice(-5)", "PermissionError"),
    "the processor for itself": (
        "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
        "PermissionError",
    ),
    "another name of the machine": ("import socket; socket.sethostname('x')", "PermissionError"),
    "typing into a terminal": (
        "import fcntl, os\nends = os.openpty(); fcntl.ioctl(ends[1], 0x5412, b'x')",
        "PermissionError",
    ),
    "many descriptors": ("files = [open('/dev/null') for _ in range(200)]", "Too many open files"),
    "a sparse file of a terabyte": ("open('sparse', 'wb').truncate(1 << 40)", "OSError"),
    "a program in a file without a name": (
        "import os\nf = os.memfd_create('x'); os.ftruncate(f, 1 << 40)",
        "OSError",
    ),
}
BY_NUMBER = {
    "tracing another process": ("ptrace", "16, 1, 0, 0"),
    "tracing itself": ("ptrace", "0, 0, 0, 0"),
    "reading init's memory": ("process_vm_readv", "1, 0, 0, 0, 0, 0"),
    "writing init's memory": ("process_vm_writev", "1, 0, 0, 0, 0, 0"),
    "taking a descriptor of another": ("pidfd_getfd", "0, 0, 0"),
    "mounting": ("mount", "b'none', b'/tmp', b'tmpfs', 0, b''"),
    "making the system writable": ("mount", "b'', b'/usr', b'', 0x20, b''"),
    "unmounting": ("umount2", "b'/tmp', 2"),
    "mounting the new way": ("fsopen", "b'tmpfs', 0"),
    "another root folder": ("pivot_root", "b'/tmp', b'/tmp'"),
    "a user namespace of its own": ("unshare", "0x10000000"),
    "joining a namespace": ("setns", "0, 0"),
    "opening by handle": ("open_by_handle_at", "-100, 0, 0"),
    "keys of the kernel": ("keyctl", "0, -3, 0"),
    "programs for the kernel": ("bpf", "0, 0, 0"),
    "counters of the processor": ("perf_event_open", "0, 0, -1, -1, 0"),
    "holding the kernel at a page": ("userfaultfd", "0"),
    "loading a module": ("finit_module", "0, b'', 0"),
    "another kernel": ("kexec_load", "0, 0, 0, 0"),
    "rebooting": ("reboot", "0xfee1dead, 672274793, 0x1234567, 0"),
    "setting the clock": ("clock_settime", "0, 0"),
    "watching the file system": ("fanotify_init", "0, 0"),
}
END = b"<end>"
RUNNER = """
import os, sys
os.chdir("/tmp")
def caught():
    try:
        exec(sys.argv[1], {})
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
said = caught()
sys.stdout = sys.__stdout__
print(said, "<end>", flush=True)
"""
CALLING = """
import ctypes, os
def call(*words):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


def test_more_than_fifty_escape_attempts_are_tested() -> None:
    assert len(ATTEMPTS) + len(BY_NUMBER) + len(HANDED_OVER) > 50


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_escape_attempt_ends_with_an_error(session: PythonSession, attempt: str) -> None:
    code, error = ATTEMPTS[attempt]
    found = session.run(code, SECONDS)
    assert error in str(found.error), found
    assert session.run("6 * 7", SECONDS).output == "42\n", "the session goes on, or is a new one"
    session.run("import os\nfor name in os.listdir('.'): os.unlink(name)", SECONDS)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    with open_folder() as folder:
        root = root_folder(folder / "root", files={"workspace/own": ""})
        yield image_of(str(plain_tar(root, folder / "image.tar")), folder / "cache")


def in_image(image: Image, code: str) -> str:
    """Returns the result of code in a Python of this machine, in a separate sandbox with the image."""
    program = [*worker_python(image), "-I", "-S", "-c", RUNNER, code]
    with Workspace(image=image) as workspace, Box(program, SMALL, None, None, workspace, image=image) as box:
        box.busy_since = time.monotonic()
        line = box.read_until(lambda data: END in data, SECONDS, 1 << 20) or b""
    return line.partition(END)[0].decode()


@pytest.mark.parametrize(
    "attempt", [name for name in ATTEMPTS if name != "too much output"]
)  # the limit of a session
def test_an_escape_attempt_on_an_image_ends_with_the_same_error(image: Image, attempt: str) -> None:
    code, error = ATTEMPTS[attempt]
    assert error in in_image(image, code.replace("'/usr/x'", "'/usr/bin/x'"))


IN_AN_IMAGE = {
    "writing to the image": ("open('/etc/x', 'w')", "Read-only"),
    "writing to the image's programs": ("open('/usr/bin/bash', 'ab')", "Error"),
    "changing rights in the image": ("import os; os.chmod('/usr/bin/bash', 0o777)", "Read-only"),
    "removing from the image": ("import os; os.unlink('/usr/bin/bash')", "Read-only"),
    "a file of the image under another name": ("import os; os.link('/usr/bin/bash', 'bash')", "OSError"),
    "the programs of this machine": ("open('/usr/bin/python3')", "FileNotFoundError"),
    "the program that sets limits": ("open('/.box/prlimit', 'ab')", "Error"),
    "the worker's own files": ("open('/.box/linker', 'ab')", "Error"),
    "beside the worker's own files": ("open('/.box/x', 'w')", "Read-only"),
    "below the workspace": ("import os; os.listdir('/workspace/../cache')", "FileNotFoundError"),
    "the image by the way it came": (
        "import re\nfor line in open('/proc/self/mountinfo'): open(line.split()[3] + '/../image.json')",
        "Error",
    ),
    "a mount taken away": ("import os; os.rmdir('/.box')", "OSError"),
}


@pytest.mark.parametrize("attempt", IN_AN_IMAGE)
def test_an_image_cannot_be_used_to_escape(image: Image, attempt: str) -> None:
    code, error = IN_AN_IMAGE[attempt]
    assert error in in_image(image, code)


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="numbers of system calls")
@pytest.mark.parametrize("attempt", BY_NUMBER)
def test_an_escaping_system_call_is_not_permitted_on_an_image(image: Image, attempt: str) -> None:
    name, arguments = BY_NUMBER[attempt]
    number = REFUSED[name][MACHINES[platform.machine()].column]
    assert "PermissionError: [Errno 1]" in in_image(image, f"{CALLING}call({number}, {arguments})")


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="numbers of system calls")
@pytest.mark.parametrize("attempt", BY_NUMBER)
def test_an_escaping_system_call_is_not_permitted(session: PythonSession, attempt: str) -> None:
    name, arguments = BY_NUMBER[attempt]
    number = REFUSED[name][MACHINES[platform.machine()].column]
    found = session.run(f"{CALLING}call({number}, {arguments})", SECONDS)
    assert "PermissionError: [Errno 1]" in str(found.error), found


@pytest.mark.parametrize("number", UNKNOWN.values(), ids=list(UNKNOWN))
def test_a_call_with_invisible_arguments_is_reported_as_unsupported(
    session: PythonSession, number: int
) -> None:
    assert "not implemented" in str(session.run(f"{CALLING}call({number}, 0, 0, 0)", SECONDS).error)


def test_usual_programs_work_under_the_filter(session: PythonSession) -> None:
    script = "git init -q r && cd r && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git log | wc -l"
    code = f"import subprocess\nsubprocess.run(['bash', '-c', '{script}'], capture_output=True, text=True).stdout"
    if shutil.which("git", path="/usr/bin"):
        assert session.run(code, SECONDS).text() == "'5\\n'"
    pool = "from concurrent.futures import ThreadPoolExecutor as P\nwith P(4) as p: print(sum(p.map(abs, range(9))))"
    assert session.run(pool, SECONDS).text() == "36"
    math = "import numpy, sympy\n(int(numpy.eye(50).sum()), str(sympy.integrate('x**2')))"
    with PythonSession() as large:
        found = large.run(math, SECONDS).text()
    assert found == "(50, 'x**3/3')" or "ModuleNotFoundError" in found


HANDED_OVER = {
    "a process that waits for the tests": (
        "(trap '' HUP TERM INT; setsid nohup bash -c 'while :; do echo cheated > tests/t; done' &) >/dev/null 2>&1"
    ),
    "a link in place of the tests": "ln -s /usr tests",
    "a folder that nobody may enter in place of the tests": "mkdir -p tests/t && chmod 0 tests",
    "a fifo in place of the tests": "mkfifo tests",
    "tests that cannot be written": "mkdir tests && echo cheated > tests/t && chmod 400 tests/t && chmod 500 tests",
}


@pytest.mark.parametrize("attempt", HANDED_OVER)
def test_tests_copied_in_after_the_agent_has_ended_are_the_ones_that_run(
    attempt: str, tmp_path: Path
) -> None:
    (tmp_path / "t").write_text("honest\n")
    with Workspace() as workspace:
        with Shells(workspace) as shells:
            shells.execute("agent", HANDED_OVER[attempt], SECONDS)
        workspace.copy_in(tmp_path, "tests")
        time.sleep(0.05)  # for a process that would still exist
        assert run("cat tests/t", SECONDS, workspace).output == "honest\n"
        assert workspace.read("tests/t") == b"honest\n"
