"""Simulates an H100: Triton compiles for it and checks the limits; nothing is launched.

Real are the choices of the library for this GPU, all configurations of its autotuners, the compilation to a cubin
with Triton's own ptxas, and the limit of shared memory. Tensors are on the CPU, and outputs keep their initial
values. An autotuner compiles its configurations at each launch here; on a GPU it reuses its choice for the same key.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources, PTXASError

SHARED = 232_448
"""Bytes of shared memory available to one block."""
SKIPPED = (CompileTimeAssertionFailure, OutOfResources, PTXASError)
"""Errors after which an autotuner tries its next configuration; any other error ends training."""
NEVER = [float("inf")] * 3


@dataclass(frozen=True)
class Compiled:
    """One kernel with one configuration of its autotuner; `shared` and `spilled` in bytes, `registers` of a thread.

    Attributes:
        key: launches with the same key share the autotuner's choice, even if their variants differ.
    """

    kernel: str
    variant: str
    candidate: str
    key: str
    shared: int
    registers: int
    spilled: int


@dataclass(frozen=True)
class Failed:
    """A configuration without a cubin; `ends`: whether training would end with it."""

    kernel: str
    candidate: str
    error: str
    ends: bool


class Hopper(DriverBase):
    """Triton's driver; `compiled` and `failed` list the compiled and the failed kernels."""

    def __init__(self) -> None:
        properties = {"max_shared_mem": SHARED, "multiprocessor_count": 132, "warpSize": 32}
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: properties,
            load_binary=lambda name, cubin, shared, device: (object(), object(), 0, 0, 1024),
        )
        self.compiled: dict[tuple[str, ...], Compiled] = {}
        self.failed: list[Failed] = []
        self.tuned: set[str] = set()
        self.candidate = self.key = ""
        self.log = StringIO()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("nothing is launched")

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """Records a compiled kernel; Triton calls it after compiling, and again if the kernel did not fit, before it
        checks."""
        names = source.fn.arg_names
        constants = {names[place[0]]: value for place, value in source.constants.items()}
        fixed = {name: value for name, value in constants.items() if name not in self.tuned}
        name, variant = source.fn.__name__, f"{source.signature} {source.attrs} {fixed}"
        registers, spilled = (
            self._last(about) for about in (r"Used (\d+) registers", r"(\d+) bytes spill stores")
        )
        compiled = Compiled(name, variant, self.candidate, self.key, metadata.shared, registers, spilled)
        self.compiled.setdefault((name, variant, self.candidate), compiled)
        return lambda *_: None

    def _last(self, pattern: str) -> int:
        return int(re.findall(pattern, self.log.getvalue())[-1])

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return self._compile_candidate

    def _compile_candidate(self, call: Callable[[], None], quantiles: Any = None) -> list[float]:
        about = inspect.getclosurevars(call).nonlocals
        self.tuned, self.candidate = set(about["config"].kwargs), str(about["config"])
        try:
            call()
        except OutOfResources:
            return NEVER
        except Exception as error:  # the report names all configurations that fail
            ends = not isinstance(error, SKIPPED)
            self.failed.append(
                Failed(about["self"].base_fn.__name__, self.candidate, repr(error)[:500], ends)
            )
            return NEVER
        finally:
            self.tuned, self.candidate = set(), ""
        return [1.0] * 3

    def sees(self, call: Callable[[], None]) -> None:
        """Runs Python code that launches kernels. Raises Triton's error if a kernel has no configuration left."""
        with redirect_stdout(self.log):
            call()


class Forgets(dict[Any, Any]):
    """An autotuner's cache that is always empty."""

    def __init__(self, driver: Hopper) -> None:
        self.driver = driver

    def __contains__(self, key: object) -> bool:
        self.driver.key = str(key)
        return False


def stand_in() -> Hopper:
    """Makes this process take the GPU for an H100; call it before anything imports flash-linear-attention."""
    torch.cuda.get_device_name = lambda device=None: "NVIDIA H100 80GB HBM3"
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.device_count = lambda: 1
    knobs.compilation.always_compile = knobs.nvidia.dump_ptxas_log = True
    driver = Hopper()
    triton.runtime.driver.set_active(driver)
    tune = Autotuner.run

    def tune_anew(tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        driver.key, tuner.cache, tuner.cache_results = "", Forgets(driver), False
        return tune(tuner, *args, **kwargs)

    Autotuner.run = tune_anew
    return driver
