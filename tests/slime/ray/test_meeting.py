"""Tests that ranks of one machine meet through a file that only their user can open, and open no port to others."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from slime.ray.meeting import Meeting, arrange
from slime.training.core.distributed import join
from tests.fakes.forks import Forks

RANK = """
import json, os, sys
from pathlib import Path
for chosen in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):  # by another test of this process
    os.environ.pop(chosen, None)
import psutil, torch, torch.distributed as dist
from slime.ray.meeting import Meeting
from slime.training.core.distributed import broadcast, join, merge_over_ranks
from slime.training.core.objects import gather_json, receive_json, send_json
rank, ranks, file, out = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
join(rank, ranks, False, None, Meeting(file).enter(ranks), one_node=ranks == 1)
total = torch.ones(3)
dist.all_reduce(total)
later = dist.new_group(list(range(ranks)))
if ranks > 1 and rank == 0:
    send_json({"a": [1, None, "x"]}, 1)
found = {
    "listens": [one.laddr.ip for one in psutil.Process().net_connections("inet") if one.status == "LISTEN"],
    "total": total.tolist(),
    "sent": receive_json(0) if rank == 1 else None,
    "gathered": gather_json({"rank": rank, "text": "é" * rank}, later),
    "broadcast": broadcast(["checksum", "slot"] if rank == 0 else None),
    "merged": sorted(merge_over_ranks({5 * rank + i: [rank + 0.1] * i for i in range(3 if rank != 2 else 0)}).items()),
}
Path(out, str(rank)).write_text(json.dumps(found))
dist.barrier()
"""


def run(forks: Forks, folder: Path, ranks: int) -> list[dict[str, object]]:
    meeting = arrange(folder / "run", ranks, several_nodes=False)
    forks.run(RANK, folder, *([rank, ranks, meeting.file, folder] for rank in range(ranks)))
    return [json.loads((folder / str(rank)).read_text()) for rank in range(ranks)]


def test_ranks_of_one_machine_listen_on_no_outside_address(fsdp_forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    found = run(fsdp_forks, tmp_path, 3)
    for rank, one in enumerate(found):
        assert set(one["listens"]) <= {"127.0.0.1"}  # type: ignore[call-overload]
        assert one["total"] == [3.0] * 3 and one["broadcast"] == ["checksum", "slot"]
        assert one["sent"] == ({"a": [1, None, "x"]} if rank == 1 else None)
        assert one["gathered"] == [{"rank": i, "text": "é" * i} for i in range(3)]
        assert one["merged"] == [[0, []], [1, [0.1]], [2, [0.1, 0.1]], [5, []], [6, [1.1]], [7, [1.1, 1.1]]]


def test_a_single_rank_needs_no_rendezvous(fsdp_forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    [found] = run(fsdp_forks, tmp_path, 1)
    assert set(found["listens"]) <= {"127.0.0.1"}  # type: ignore[call-overload]
    assert found["merged"] == [[0, []], [1, [0.1]], [2, [0.1, 0.1]]]
    assert arrange(tmp_path / "run", 1, several_nodes=False) == Meeting()
    assert list((tmp_path / "run").iterdir()) == []


def test_the_rendezvous_file_is_new_and_private(tmp_path: Path) -> None:
    first, second = (arrange(tmp_path, 2, several_nodes=False) for _ in range(2))
    assert first.file != second.file
    folder = Path(second.file).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and folder.parent == tmp_path
    Path(second.file).touch()
    second.end()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("place", ["tcp://127.0.0.1:29500", "tcp://10.0.0.1:29500", "env://"])
def test_ranks_do_not_rendezvous_at_an_open_port(place: str) -> None:
    with pytest.raises(ValueError, match="init_method must be file"):
        join(0, 2, False, place, None, one_node=True)
