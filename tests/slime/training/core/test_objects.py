"""Tests that an object sent by another rank cannot run code."""

from __future__ import annotations

import ast
import io
import json
import pickle
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from slime.errors import CheckpointError, TrainError
from slime.training.core.objects import KnownClasses
from tests import ROOT
from tests.fakes.forks import Forks

ATTACK = """
import json, os, sys
from pathlib import Path
import torch.distributed as dist
from slime.ray.meeting import Meeting
from slime.training.core.distributed import join


class Bomb:
    def __reduce__(self):
        return os.system, (f"touch {sys.argv[2]}/exploded",)


rank, folder = int(sys.argv[1]), sys.argv[2]
join(rank, 2, False, None, Meeting(folder + "/meet").enter(2), one_node=True)
mine, refused = Bomb() if rank else "harmless", []


def gathered():
    dist.all_gather_object([None, None], mine)


def gathered_by_one():
    dist.gather_object(mine, [None, None] if rank == 0 else None, dst=0)


def broadcast():
    dist.broadcast_object_list([mine], src=1)


def scattered():
    dist.scatter_object_list([None], [mine, mine] if rank else None, src=1)


def sent():
    if rank:
        dist.send_object_list([mine], dst=0)
    else:
        dist.recv_object_list([None], src=1)


for way in (gathered, gathered_by_one, broadcast, scattered, sent):
    try:
        way()
    except Exception as error:
        refused.append(f"{way.__name__}: {error}")
    dist.barrier()
Path(folder, f"refused{rank}").write_text(json.dumps(refused))
"""


def test_no_collective_runs_code_sent_by_another_rank(fsdp_forks: Forks, tmp_path: Path) -> None:
    fsdp_forks.run(ATTACK, tmp_path, *([rank, tmp_path] for rank in range(2)))
    refused = json.loads((tmp_path / "refused0").read_text())
    assert [one.partition(":")[0] for one in refused] == [
        *("gathered", "gathered_by_one", "broadcast", "scattered", "sent")
    ]
    assert all("received posix.system from a rank" in one for one in refused)
    assert not (tmp_path / "exploded").exists()


def read(value: object, protocol: int = 4) -> Any:
    return KnownClasses(io.BytesIO(pickle.dumps(value, protocol))).load()


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, ("x", b"y")], "b": {1, 2}},
        SavePlan(
            [WriteItem(MetadataIndex("w", [0, 1]), WriteItemType.TENSOR)], planner_data={"w": ("model", "w")}
        ),
        torch.Size([2, 3]),
        torch.bfloat16,
        torch.strided,
    ],
)
@pytest.mark.parametrize("protocol", [4, 5])
def test_objects_sent_during_a_checkpoint_are_read(value: object, protocol: int) -> None:
    assert read(value, protocol) == value


class Other(Exception):
    """A class of a package that a rank lacks: only its name and message remain."""


Other.__name__ = Other.__qualname__ = "OtherError"
OtherError = Other


def test_errors_of_another_rank_are_read() -> None:
    assert isinstance(read(OSError(28, "no space")), OSError)
    assert isinstance(read(CheckpointError("broken")), CheckpointError)
    other = read(OtherError("words"))
    assert isinstance(other, TrainError) and type(other) is not OtherError and str(other) == "words"


class Call:
    def __init__(self, *made_by: Any) -> None:
        self.made_by = made_by

    def __reduce__(self) -> Any:
        return self.made_by


class OlderPython(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        return (getattr, (type(value), value.name)) if isinstance(value, Enum) else NotImplemented


def test_only_enum_members_are_read_from_older_pythons_pickles() -> None:
    written = io.BytesIO()
    OlderPython(written).dump(WriteItemType.TENSOR)
    assert KnownClasses(io.BytesIO(written.getvalue())).load() is WriteItemType.TENSOR
    for owner, name in (
        (WriteItemType, "__members__"),
        (WriteItemType, "mro"),
        (torch.float32, "is_complex"),
    ):
        with pytest.raises(pickle.UnpicklingError, match="from a rank"):
            read(Call(getattr, (owner, name)))


@pytest.mark.parametrize(
    "call", [(eval, ("1",)), (Path.touch, (Path("x"),)), (torch.load, ("x",)), (print, ())]
)
def test_other_names_in_a_pickle_are_rejected(call: tuple[Any, ...]) -> None:
    with pytest.raises(pickle.UnpicklingError, match="from a rank"):
        read(Call(*call))


def test_ranks_exchange_no_objects_of_our_classes() -> None:
    """Torch's own checkpoints do, and are read as above; our code sends JSON and tensors."""
    ways = ("_object", "_object_list", "object_list")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "slime" / "slime").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith("dist.")
        and ast.unparse(node.func).endswith(ways)
    ]
    assert found == []
