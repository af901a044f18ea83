"""Replaces SGLang's CUDA kernels on a machine without a GPU: it can be imported, and every call raises an error."""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.4.10"


class _Missing:
    """A kernel, or a name inside one."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self.name}.{name}")

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self.name} needs a GPU")


class _Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Missing(f"{self.__name__}.{name}")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Stub(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _Missing(f"sgl_kernel.{name}")


sys.meta_path.append(_Finder())
