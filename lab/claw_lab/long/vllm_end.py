"""Kills our server of a running vLLM, and checks that no process of it remains. `vllm_end.py PID OF THE LAUNCHER`"""

import sys
import time

import psutil

launcher = psutil.Process(int(sys.argv[1]))
family = launcher.children(recursive=True)
assert len(family) > 2, "the server, vLLM's engine process and its worker"
began = time.monotonic()
family[0].kill()
_, left = psutil.wait_procs([launcher, *family], timeout=30)
left = [process for process in left if process.status() != psutil.STATUS_ZOMBIE]
assert not left, left
print(
    f"passed  a server that is killed takes its {len(family) - 1} processes along: {time.monotonic() - began:.1f} s later"
)
