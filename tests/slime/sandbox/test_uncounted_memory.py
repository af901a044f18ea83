"""Tests sandboxes without a cgroup, as those of an ordinary user: memory and files cannot exceed the limits
uncounted."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

import pytest

from slime.sandbox import Limits, PythonSession, Shells, Workspace, box, run
from slime.sandbox.python_session import close_all
from slime.sandbox.usage import Usage

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
LIMITS = Limits(
    memory=128 << 20,
    processes=24,
    disk_bytes=4 << 20,
    file_bytes=4 << 20,
    cpu_seconds=30,
    address_space=1 << 32,
)
SECONDS = 60.0
MEMORY = "together used more than 128 MiB of memory"


@pytest.fixture(autouse=True)
def no_cgroup(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    close_all()
    monkeypatch.setattr(box, "make_group", lambda limits: None)
    yield
    close_all()


def test_host_data_are_not_counted_during_the_sandboxs_start() -> None:
    usage = Usage(os.getpid(), ("/tmp",))
    assert (usage.processes(), usage.memory(), usage.too_many_files(0)) == ([], 0, None)


REFUSED = {
    "a file without a name": "import os; os.memfd_create('x')",
    "shared memory of System V": "call(29, 0, 1 << 20, 0o1600)",
    "shared memory of System V, detached": "at = call(29, 77, 1 << 20, 0o1600); call(30, at, 0, 0); call(67, 0)",
    "messages of System V": "call(68, 0, 0o1600)",
    "semaphores of System V": "call(64, 0, 32000, 0o1600)",
    "secret memory": "call(447, 0)",
    "pages of a process in a pipe": "at, end = ctypes.create_string_buffer(1), os.pipe()[1]\n"
    "call(278, end, ctypes.byref((ctypes.c_size_t * 2)(ctypes.addressof(at), 1)), 1, 0)",
    "shared memory as a file": "open('/dev/shm/x', 'w')",
    "a queue of messages larger than a user's": "import resource\n"
    "resource.setrlimit(resource.RLIMIT_MSGQUEUE, (1 << 40, 1 << 40))",
}
CALLING = """
import ctypes, os
def call(*words):
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(*words)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found
"""
TAKING = {
    "shared by processes that end": """
import mmap, os, time
kept = []
for i in range(8):
    m = mmap.mmap(-1, 24 << 20); kept.append(m)
    if os.fork() == 0:
        m[::4096] = b'x' * len(m[::4096]); os._exit(0)
    os.wait()
time.sleep(60)
""",
    "shared and given back by page tables": """
import mmap, time
kept = []
for i in range(8):
    m = mmap.mmap(-1, 24 << 20); kept.append(m)
    m[::4096] = b'x' * len(m[::4096]); m.madvise(mmap.MADV_DONTNEED)
time.sleep(60)
""",
    "shared and unmapped to a page": """
import ctypes, mmap, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
for i in range(200):
    at = libc.mmap(None, 8 << 20, 3, 0x21, -1, 0)
    ctypes.memset(at, 1, 8 << 20); libc.munmap(at + 4096, (8 << 20) - 4096)
time.sleep(60)
""",
    "zeros that are shared": """
import mmap, os, time
zero, kept = os.open('/dev/zero', os.O_RDWR), []
for i in range(12):
    if os.fork() == 0:
        m = mmap.mmap(zero, 24 << 20); m[::4096] = b'x' * len(m[::4096]); time.sleep(60)
time.sleep(60)
""",
}
LATER = {
    "a thread that starts processes": """
import os, threading, time
def later():
    time.sleep(0.3)
    for i in range(6):
        if os.fork() == 0:
            x = bytearray(40 << 20); x[::4096] = b'x' * len(x[::4096]); time.sleep(600)
threading.Thread(target=later).start()
""",
    "a thread whose child starts processes and ends": """
import os, threading, time
def later():
    time.sleep(0.3)
    if os.fork() == 0:
        os.setsid()
        for i in range(6):
            if os.fork() == 0:
                x = bytearray(40 << 20); x[::4096] = b'x' * len(x[::4096]); time.sleep(600)
        os._exit(0)
threading.Thread(target=later).start()
""",
    "a thread that shares memory": """
import mmap, threading, time
def later():
    time.sleep(0.3)
    kept = [mmap.mmap(-1, 24 << 20) for i in range(8)]
    time.sleep(600)
threading.Thread(target=later).start()
""",
    "a thread that makes empty files": """
import threading, time
def later():
    time.sleep(0.3)
    for i in range(3000): open(f'/tmp/{i}', 'w').close()
    time.sleep(600)
threading.Thread(target=later).start()
""",
}


def test_memory_outside_of_processes_cannot_be_allocated() -> None:
    with PythonSession(LIMITS) as session:
        session.run(CALLING, SECONDS)
        for name, code in REFUSED.items():
            assert "Error" in str(session.run(code, SECONDS).error), name
        assert session.run("6 * 7", SECONDS).text() == "42"


@pytest.mark.parametrize("name", TAKING)
def test_shared_memory_counts_for_the_limit(name: str) -> None:
    with PythonSession(LIMITS) as session:
        found = session.run(TAKING[name], SECONDS)
        assert MEMORY in str(found.error) and found.seconds < 30
        assert session.run("6 * 7", SECONDS).text() == "42"


@pytest.mark.parametrize("name", LATER)
def test_an_idle_sandbox_is_monitored(name: str) -> None:
    with PythonSession(LIMITS) as session:
        assert session.run(LATER[name], SECONDS).error is None
        assert session.box is not None
        assert session.box.exit_code(20.0) is not None
        assert session.box.over is not None
        assert session.run("6 * 7", SECONDS).restarted
        assert session.run("6 * 7", SECONDS).text() == "42"


def test_empty_files_count_for_the_limit() -> None:
    code = "import time\nfor i in range(3000): open(f'/tmp/{i}', 'w').close()\ntime.sleep(60)"
    with PythonSession(LIMITS) as session:
        assert "files in /tmp are too many: there are more than 2048" in str(session.run(code, SECONDS).error)
    links = 'python3 -c \'import os\nfor i in range(3000): os.symlink("x", f"/tmp/{i}")\'; sleep 60'
    assert "files in /tmp are too many" in str(run(links, SECONDS, limits=LIMITS).error)


@pytest.mark.parametrize("kept", ["open", "mapped"])
def test_deleted_open_files_count_for_the_workspace_limit(kept: str) -> None:
    code = f"""
import mmap, os, time
held = []
for i in range(20):
    f = os.open('x', os.O_CREAT | os.O_RDWR); os.unlink('x'); os.write(f, bytes(1 << 20))
    held.append(mmap.mmap(f, 1 << 20) if {kept == "mapped"} else f)
    if {kept == "mapped"}: os.close(f)
time.sleep(60)
"""
    with Workspace(most_bytes=8 << 20) as workspace:
        found = run(f"cat > /tmp/x.py <<'END'\n{code}\nEND\npython3 /tmp/x.py", SECONDS, workspace, LIMITS)
    assert "files in /workspace are too many: files take more than 8 MiB" in str(found.error), found


def test_usual_programs_work_and_a_full_disk_is_detected() -> None:
    with PythonSession(LIMITS) as session:
        found = session.run(
            "import mmap\nm = mmap.mmap(-1, 8 << 20); m[:5] = b'hello'\nm[:5].decode()", SECONDS
        )
        assert found.text() == "'hello'"
        full = "for i in range(64):\n    open(f'f{i}', 'wb', 0).write(bytes(1 << 19)) == 1 << 19 or 1 / 0"
        assert "Error" in str(session.run(full, SECONDS).error)
        assert (
            session.run("import os\nx = os.system('echo seen')\nprint('too')", SECONDS).text() == "seen\ntoo"
        )
        assert session.run("print('later')", SECONDS).text() == "later"
    with Shells(limits=LIMITS) as shells:
        assert shells.execute("a", "echo 1 | cat; seq 3 | sort -r | head -1", SECONDS).text() == "1\n3"


def test_a_sleeping_sandbox_is_not_ended() -> None:
    with PythonSession(LIMITS) as session:
        session.run("kept = bytearray(64 << 20); kept[::4096] = b'x' * len(kept[::4096])", SECONDS)
        time.sleep(1.0)
        assert session.run("len(kept) >> 20", SECONDS).text() == "64"
