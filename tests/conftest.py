"""Shared fixtures of the trainer's tests. Nothing heavy is imported before a test needs it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import before_release, parts
from tests.fakes.fixtures import MakeTrainer, MakeTrainingArgs
from tests.processes import pytest_runtestloop as pytest_runtestloop

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick`, files of other tests are not imported."""
    others = collection_path.suffix == ".py" and not parts.is_quick(collection_path)
    return True if others and config.option.markexpr == "quick" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    server = getattr(item, "callspec", None) is not None and "postgresql" in item.callspec.params.values()  # type: ignore[attr-defined]
    if parts.is_quick(item.path) and not server:
        item.add_marker("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all", action="store_true", dest="all_tests", help="run the tests of before_release.toml too"
    )
    parser.addoption("--processes", type=int, default=1, help="run tests in this many processes")


def pytest_configure(config: pytest.Config) -> None:
    """A run that names files or tests runs all of them."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    config.option.all_tests = config.option.all_tests or named


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disables garbage collection during imports, which takes a seventh less time; later collections skip the
    modules."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects tests that wait for `--all`. With several processes, the longest tests start first."""
    if not config.option.all_tests and not config.option.markexpr:
        nodes = [item.nodeid for item in items]
        if lost := before_release.unused(nodes):
            raise pytest.UsageError(f"{before_release.FILE.name} names tests that do not exist: {lost}")
    if not config.option.all_tests:
        out = before_release.waiting([item.nodeid for item in items])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
        items[:] = [item for item in items if item.nodeid not in out]
    if config.option.processes > 1:
        items.sort(key=lambda item: parts.rank(item.path))


@pytest.fixture(scope="session", autouse=True)
def certificates_are_read_once() -> Iterator[None]:
    """httpx loads all certificates for each client, which takes 45 ms, and no test uses TLS."""
    from functools import cache

    from httpx._transports import default

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", cache(default.create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def servers_of_this_process_end_at_once() -> Iterator[None]:
    """uvicorn checks ten times a second whether it should stop, and then waits a tenth of a second. This takes 0.17 s
    for each of several hundred tests with a server. A server in a separate process waits as it does for users."""
    import asyncio
    from types import SimpleNamespace

    import uvicorn.server

    def sleep(seconds: float) -> Any:
        return asyncio.sleep(min(seconds, 0.01))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", SimpleNamespace(**(vars(asyncio) | {"sleep": sleep})))
        yield


@pytest.fixture(scope="session")
def write_qwen3() -> Callable[..., str]:
    """f(folder, seed, **shape): writes a random Qwen3 with a few thousand parameters and no tokenizer; returns the
    folder."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    def write(folder: Path, seed: int, **shape: Any) -> str:
        torch.manual_seed(seed)
        values: dict[str, Any] = {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "tie_word_embeddings": True,
            "initializer_range": 0.2,
        }
        Qwen3ForCausalLM(Qwen3Config(**(values | shape))).save_pretrained(folder)
        (folder / "tokenizer_config.json").write_text("{}")
        return str(folder)

    return write


@pytest.fixture
def training_args(tmp_path: Path) -> MakeTrainingArgs:
    """f(model_folder, **values): arguments for training it with raw rewards and checkpoints in the test's folder."""
    from slime.arguments import Arguments

    known = Arguments.__dataclass_fields__

    def make(model_folder: str, **values: Any) -> Any:
        common: dict[str, Any] = {
            "hf_checkpoint": model_folder,
            "ref_load": model_folder,
            "save": str(tmp_path / "checkpoints"),
            "disable_rewards_normalization": True,
        }
        values = common | values
        args = Arguments(**{name: value for name, value in values.items() if name in known})
        for name in values.keys() - known:  # a flag of a plug-in
            setattr(args, name, values[name])
        return args

    return make


@pytest.fixture
def make_trainer(make_args: Callable[..., Any]) -> Iterator[MakeTrainer]:
    """f(**flags): a single-rank trainer with the backend of its flags and the arguments of the folder's `make_args`;
    closed after the test."""
    trainers: list[Any] = []

    def make(**changes: object) -> Any:
        args = make_args(**changes)
        if args.train_backend == "megatron":
            from slime.training.megatron import MegatronTrainer as Trainer
        else:
            from slime.training.fsdp import FSDPTrainer as Trainer
        trainers.append(Trainer(args))
        return trainers[-1]

    yield make
    for trainer in trainers[:1]:  # all trainers of a process share one process group
        trainer.close()


@pytest.fixture(autouse=True)
def no_process_group_stays() -> Iterator[None]:
    """Destroys the process group of a trainer that failed to start; each of Megatron's uses about 70 files."""
    yield
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
