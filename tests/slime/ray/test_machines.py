"""Tests scripts for GPUs on clusters of many shapes: a start accepts exactly what the dry run accepts. Without
Ray."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from slime.arguments import Arguments
from slime.errors import ClusterError
from slime.plan import dry_run
from slime.plan.gpu_split import GpuSplit, RunPart, split_of
from slime.plan.seats import Machine, seats_of
from slime.ray import placement
from slime.ray.placement import BundleSite, Placement, in_node_order
from slime.ray.servers.specs import sites_of_engines
from tests import ROOT
from tests.fakes.dry_run import words_of

SCRIPTS = (
    "swe-rl/run_swe_rl_8b_2nodes.sh",
    "swe-rl/run_swe_rl_8b_prm_5nodes.sh",
    "swe-rl/run_swe_rl_32b_4nodes.sh",
    "swe-rl/run_swe_rl_32b_remote_8nodes.sh",
    "swe-rl/run_swe_rl_4b_4nodes_colocate.sh",
    "terminal-rl/terminal_qwen3_8b_prm_rl_2nodes.sh",
    "toolcall-rl/retool_qwen3_32b_rl.sh",
    "toolcall-rl/retool_qwen3_32b_prm_rl.sh",
    "openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh",
)
EVERY = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*-rl/*.sh"), *ROOT.glob("openclaw-*/*.sh")]
    if 'run_gpu "$@"' in path.read_text()
)
"""Scripts for GPUs, including those for one machine."""
GPUS = (1, 2, 4, 6, 8, 16)
"""GPUs of each machine; the number of machines is that needed by all parts together, and one more or less."""

words_of_script = cache(words_of)


class PretendedRay:
    """Nodes with GPUs, assigned to placement groups as by Ray: by label, otherwise as densely as possible."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self.free = {f"node-{number}": list(range(count)) for number, count in enumerate(gpus)}
        self.all = {node: len(own) for node, own in self.free.items()}
        self.held: dict[Any, dict[int, tuple[str, int]]] = {}
        self.live = set(self.free)

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {
            node: {"NodeManagerAddress": f"10.0.0.{node[5:]}", "Resources": {"GPU": self.all[node]}}
            for node in self.live
        }

    def group(self, bundles: list[Any], strategy: str, bundle_label_selector: list[dict[str, str]]) -> Any:
        assert strategy == "PACK"
        sites: dict[int, tuple[str, int]] = {}
        for number, (bundle, labels) in enumerate(zip(bundles, bundle_label_selector, strict=True)):
            if "GPU" not in bundle:
                sites[number] = ("node-0", -1)
                continue
            wanted = labels.get("ray.io/node-id")
            room = [node for node in self.live if self.free[node] and wanted in (None, node)]
            if not room:
                break
            fullest = max(room, key=lambda node: (len(self.free[node]), node))
            sites[number] = (fullest, self.free[fullest].pop(0))
        made = SimpleNamespace(wait=lambda seconds: len(sites) == len(bundles))
        self.held[id(made)] = sites
        return made

    def table(self, group: Any) -> dict[str, Any]:
        return {"bundles_to_node_id": {number: node for number, (node, _) in self.held[id(group)].items()}}

    def remove(self, group: Any) -> None:
        for node, gpu in self.held.pop(id(group)).values():
            self.free[node].append(gpu)

    def probe(self, placed: Placement, bundles: Sequence[int]) -> list[BundleSite]:
        found = []
        for index in bundles:
            key, number = placed.places[index]
            node, gpu = self.held[id(placed.groups[key])][number]
            found.append(BundleSite(index, f"10.0.0.{node[5:]}", gpu, node))
        return found


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yields a function that creates the nodes; the driver is on the first."""

    def make(gpus: Sequence[int]) -> PretendedRay:
        ray = PretendedRay(gpus)
        context = SimpleNamespace(get_node_id=lambda: "node-0")
        monkeypatch.setattr(placement.ray, "get_runtime_context", lambda: context)
        monkeypatch.setattr(placement, "alive_nodes", ray.nodes)
        monkeypatch.setattr(placement, "placement_group", ray.group)
        monkeypatch.setattr(placement, "placement_group_table", ray.table)
        monkeypatch.setattr(placement, "remove_placement_group", ray.remove)
        monkeypatch.setattr(Placement, "probe", lambda self, bundles: ray.probe(self, bundles))
        return ray

    yield make


def planned(words: list[str], env: dict[str, str], machines: int, gpus: int) -> tuple[int, str]:
    """Returns exit status and output of a dry run for machines of this shape."""
    split = words.index("--")
    options = ["--num-gpus", str(machines * gpus), "--machines", str(machines), "--machine-gpus", str(gpus)]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = dry_run.main([*options, "--gpu", "B200", *words[split:]], env)
    return status, out.getvalue()


def shapes(split: GpuSplit) -> Iterator[tuple[int, int]]:
    for gpus in GPUS:
        enough = -(-split.gpus // gpus)
        for machines in (enough - 1, enough, enough + 1):
            if 1 <= machines <= 70:
                yield machines, gpus


def args_of(words: list[str], env: dict[str, str]) -> Arguments:
    """Returns the arguments of a script as the dry run parses them."""
    found: list[Arguments] = []
    keep = dry_run.machine_lines
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dry_run, "machine_lines", lambda args, plan: (found.append(args), keep(args, plan))[1])
        planned(words, env, 8, 8)
    return found[0]


@pytest.mark.parametrize("script", EVERY)
def test_a_dry_run_shows_the_placement_of_the_start(script: str, pretended: Any) -> None:
    words, env = words_of_script(script)
    args = args_of(words, env)
    split = split_of(args)
    promised = 0
    for machines, gpus in shapes(split):
        seated, fits = dry_run.machine_lines(args, dry_run.Plan(num_gpus=machines * gpus, machines=machines))
        try:
            pretended([gpus] * machines)
            placed = Placement(split)
            kept = True
            check(args, placed)
        except ClusterError as error:
            kept = False
            assert seated == [f"problem  {error}".replace("10.0.0.", "machine ")]
        assert kept == fits, (machines, gpus, seated)
        promised += fits
    assert promised >= 3


def check(args: Arguments, placed: Placement) -> None:
    """Checks that each engine has GPUs of one machine, and that parts which share no GPUs have different ones."""
    engines = sites_of_engines(args, placed)
    serves, trains = not args.debug_train_only, not args.debug_rollout_only
    assert len([name for name in engines if name.startswith("engine")]) == serves * args.engine_count
    beside = set() if args.colocate else {(site.node_id, site.gpu) for site in placed.sites["actor"]}
    used = [(site.node_id, site.gpu) for own in engines.values() for site in own]
    assert len(used) == len(set(used)) and not beside & set(used)
    assert len({site.bundle for site in placed.sites["actor"]}) == trains * args.train_world_size


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_fits_its_machines_and_prints_their_components(script: str) -> None:
    words, env = words_of_script(script)
    machines = int(words[words.index("--machines") + 1])
    status, told = planned(words, env, machines, 8)
    assert status == 0 and "problem  " not in told, told
    lines = [line for line in told.splitlines() if line.startswith("machine ")]
    assert len(lines) == machines and all("nothing" not in line for line in lines)
    status, told = planned(words, env, machines - 1, 8)
    assert status == 1 and "problem  " in told


def test_every_script_of_several_machines_is_in_the_table() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in [*ROOT.glob("*-rl/*.sh"), *ROOT.glob("openclaw-*/*.sh")]
        if "default NNODES" in path.read_text()
    }
    assert found == set(SCRIPTS)


def test_with_colocated_engines_every_machine_serves(pretended: Any) -> None:
    words, env = words_of_script("swe-rl/run_swe_rl_4b_4nodes_colocate.sh")
    args = args_of(words, env)
    pretended([8] * 4)
    placed = Placement(split_of(args))
    serving = {own[0].node_id for own in sites_of_engines(args, placed).values()}
    assert len(placed.sites["rollout"]) == 32 and len(serving) == 4


TWO_ENGINES = GpuSplit((RunPart("actor", 4, True), RunPart("rollout", 4, True, 2), RunPart("prm", 2, True)))


def test_engines_fill_the_drivers_machine_first_and_the_fewest_others() -> None:
    machines = [Machine("a", 4), Machine("b", 4), Machine("c", 4)]
    seats = seats_of(TWO_ENGINES, machines)
    assert seats.engines == {"rollout": (0, 0), "prm": (1, 1)} and seats.trainers == (0, 0, 4)
    assert seats.lines(TWO_ENGINES) == ["policy 2 x 2 GPUs", "judge 2 x 1 GPUs", "trainer 4"]


def test_large_engines_are_placed_before_small_ones() -> None:
    split = GpuSplit((RunPart("rollout", 4, True, 1), RunPart("teacher", 4, True, 4)))
    assert seats_of(split, [Machine("a", 4), Machine("b", 4)]).engines == {
        "teacher": (0,),
        "rollout": (1, 1, 1, 1),
    }


@pytest.mark.parametrize(
    ("split", "gpus", "said"),
    [
        (TWO_ENGINES, (4, 4), "actor 4 + rollout 4 + prm 2 = 10 GPUs, but there are 8"),
        (
            GpuSplit((RunPart("actor", 1, True), RunPart("rollout", 4, True, 4))),
            (3, 3),
            "the 4 GPUs of an engine (rollout) must be on one machine, but the free GPUs are m0: 3, m1: 3",
        ),
        (
            GpuSplit((RunPart("actor", 6, True), RunPart("rollout", 0, True, 2)), shared=6),
            (3, 3),
            "3 engines of 2 GPUs do not fit on the GPUs of the trainers (m0: 3, m1: 3)",
        ),
    ],
)
def test_a_placement_without_room_is_rejected_with_the_calculation(
    split: GpuSplit, gpus: tuple[int, ...], said: str
) -> None:
    with pytest.raises(ClusterError) as refusal:
        seats_of(split, [Machine(f"m{number}", count) for number, count in enumerate(gpus)])
    assert said in str(refusal.value)


def test_engines_of_a_returning_machine_get_their_gpus_again(pretended: Any) -> None:
    ray = pretended([4, 4, 4])
    placed = Placement(TWO_ENGINES)
    before = placed.sites["prm"]
    assert {site.node_id for site in before} == {"node-1"}
    ray.live.remove("node-1")
    ray.free["node-9"], ray.all["node-9"] = [0, 1, 2, 3], 4
    with pytest.raises(ClusterError, match="could not reserve these bundles within"):
        placed.reserve_again("node-1", "node-9")
    ray.live.add("node-9")
    placed.reserve_again("node-1", "node-9")
    assert [(site.node_id, site.gpu) for site in placed.sites["prm"]] == [("node-9", 0), ("node-9", 1)]
    assert {site.node_id for site in placed.sites["rollout"]} == {"node-0"}
    assert placed.of_trainers() == {"trainers"}


def test_trainers_of_a_lost_machine_move_to_another(pretended: Any) -> None:
    ray = pretended([4, 4])
    placed = Placement(GpuSplit((RunPart("actor", 8, True), RunPart("rollout", 0, True, 2)), shared=8))
    assert [site.node_id for site in placed.sites["rollout"]] == ["node-0"] * 4 + ["node-1"] * 4
    ray.live.remove("node-1")
    ray.free["node-9"], ray.all["node-9"] = [0, 1, 2, 3], 4
    ray.live.add("node-9")
    placed.release_lost()
    placed.look(placed.of_trainers())
    moved = [site.bundle for site in placed.sites["actor"]]
    placed.sites["actor"] = in_node_order(placed.probe(moved), last=placed.here)
    assert {site.node_id for site in placed.sites["actor"]} == {"node-0", "node-9"}
    placed.reserve_again("node-1", "node-9")
    assert [site.node_id for site in placed.sites["rollout"]] == ["node-0"] * 4 + ["node-9"] * 4
