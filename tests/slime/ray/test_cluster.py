"""Tests a cluster of raylets on this machine with simulated GPUs: placement, and the message about a missing node."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
import ray
import torch
import torch.distributed as dist
from ray._raylet import Config
from ray.cluster_utils import Cluster

from slime.errors import ClusterError, ConfigError
from slime.plan.gpu_split import GpuSplit, RunPart
from slime.ray import placement
from slime.ray.cluster import check_shared, here, wait_for_nodes
from slime.ray.meeting import Meeting, arrange
from slime.ray.placement import BundleSite, Placement, in_node_order
from slime.ray.train_group import TrainerDied, TrainGroup


def start() -> Cluster:
    """Starts two nodes. Ray gives each 30 s to start, which a busy machine may exceed."""
    noticed_soon = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500}
    options = {"num_cpus": 8, "num_gpus": 2, "object_store_memory": 80_000_000}
    made = Cluster()
    try:
        made.add_node(include_dashboard=False, _system_config=noticed_soon, **options)
        made.add_node(**options)
    except Exception as error:  # Ray raises no more precise type
        made.shutdown()
        pytest.skip(f"the nodes of a cluster did not start in Ray's 30 s: {error}")
    return made


def free(placed: Placement) -> None:
    placed.release_all()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Yields the driver's node and another one, 2 GPUs each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", "one-token-for-all-nodes-of-this-test")
        Config.initialize("")  # Ray read both when it was imported
        for chosen in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):  # by another test of this process
            patch.delenv(chosen, raising=False)
        made = start()
        ray.init(address=made.address, namespace="slime", logging_level="ERROR", log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


def test_trainers_take_other_nodes_first_so_that_engines_are_where_the_driver_is() -> None:
    sites = [BundleSite(0, "10.0.0.1", 0), BundleSite(1, "10.0.0.2", 1), BundleSite(2, "10.0.0.2", 0)]
    assert [site.bundle for site in in_node_order(sites)] == [0, 2, 1]
    assert [site.bundle for site in in_node_order(sites, last="10.0.0.1")] == [2, 1, 0]


def test_every_component_gets_its_own_gpus(cluster: Cluster) -> None:
    wait_for_nodes(2, 4, timeout=30)
    placed = Placement(
        GpuSplit((RunPart("actor", 2, True), RunPart("rollout", 1, True), RunPart("judge", 1, True)))
    )
    bundles = [site.bundle for part in placed.sites.values() for site in part]
    assert sorted(bundles) == list(range(4))
    assert [len(placed.sites[name]) for name in ("actor", "rollout", "judge")] == [2, 1, 1]
    free(placed)


def test_too_many_gpus_are_rejected_with_the_calculation(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match=r"actor 4 \+ rollout 1 = 5 GPUs, but there are 4"):
        Placement(GpuSplit((RunPart("actor", 4, True), RunPart("rollout", 1, True))))


def test_engines_use_the_drivers_gpus_and_trainers_those_of_other_machines(cluster: Cluster) -> None:
    mine = ray.get_runtime_context().get_node_id()
    placed = Placement(
        GpuSplit((RunPart("actor", 1, True), RunPart("rollout", 1, True), RunPart("prm", 1, True)))
    )
    assert {site.node_id for name in ("rollout", "prm") for site in placed.sites[name]} == {mine}
    free(placed)
    shared = Placement(GpuSplit((RunPart("actor", 3, True), RunPart("rollout", 0, True)), shared=2))
    assert [site.node_id for site in shared.sites["rollout"]] == [mine, mine]
    free(shared)


def test_engines_beyond_the_drivers_machine_are_placed_on_another(cluster: Cluster) -> None:
    mine = ray.get_runtime_context().get_node_id()
    placed = Placement(
        GpuSplit((RunPart("actor", 1, True), RunPart("rollout", 2, True, 2), RunPart("prm", 1, True)))
    )
    [judge], [trainer] = placed.sites["prm"], placed.sites["actor"]
    assert {site.node_id for site in placed.sites["rollout"]} == {mine}
    assert judge.node_id == trainer.node_id != mine and judge.gpu != trainer.gpu
    free(placed)


def test_an_engine_that_fits_no_machine_is_rejected(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"the 3 GPUs of an engine \(rollout\) must be on one machine"):
        Placement(GpuSplit((RunPart("actor", 1, True), RunPart("rollout", 3, True, 3))))


def test_gpus_held_by_another_run_are_reported(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Placement(GpuSplit((RunPart("actor", 2, True),)))
    monkeypatch.setattr(placement, "PLACEMENT_TIMEOUT", 1.0)
    with pytest.raises(
        ConfigError,
        match=r"(?s)could not reserve these bundles within 1 s.*--> the cluster has too few free GPUs",
    ):
        Placement(GpuSplit((RunPart("actor", 4, True),)))
    free(held)


def test_actors_that_own_processes_run_on_the_drivers_node(cluster: Cluster) -> None:
    @ray.remote(num_cpus=0)
    def node() -> str:
        return str(ray.get_runtime_context().get_node_id())

    mine = ray.get_runtime_context().get_node_id()
    asked = [node.options(scheduling_strategy=here()).remote() for _ in range(4)]
    assert set(ray.get(asked)) == {mine}


def test_a_folder_that_all_nodes_can_access_is_accepted(cluster: Cluster, tmp_path: Path) -> None:
    check_shared(tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_folder_that_a_node_cannot_access_is_rejected(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "touch", lambda self: None)
    monkeypatch.setattr(Path, "unlink", lambda self: None)
    with pytest.raises(ConfigError, match="RUN_DIR and SAVE_CKPT must be on a shared file system"):
        check_shared(tmp_path)


def test_a_machine_that_does_not_join_is_reported(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="2 of 3 machines and 4 of 5 GPUs joined in 1 s"):
        wait_for_nodes(3, 5, timeout=1)


def test_a_lost_machine_is_reported_and_training_continues_on_a_new_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The group of ranks is lost with the machine; processes on the driver's machine continue."""
    third = cluster.add_node(num_cpus=2, num_gpus=1, resources={"third": 1})
    wait_for_nodes(3, 5, timeout=30)
    placed = Placement(GpuSplit((RunPart("actor", 3, True), RunPart("rollout", 2, True))))
    assert placed.several_nodes
    rank = next(i for i, site in enumerate(placed.sites["actor"]) if site.node_id == third.node_id)
    args = Namespace(
        run_dir=str(tmp_path),
        actor_num_gpus_per_node=1,
        train_nice=0,
        train_threads=1,
        update_weight_transport="disk",
        save_timeout=0.0,
        load_timeout=0.0,
    )
    group = TrainGroup(args, placed)
    ray.get([trainer.__ray_ready__.remote() for trainer in group.ranks])
    cluster.remove_node(third, allow_graceful=False)
    with pytest.raises(TrainerDied, match=f"rank {rank} ended") as death:
        for _ in range(300):
            group.check()
            time.sleep(0.1)
    assert "-->" not in str(death.value), "nothing is known of why it ended"
    group.kill()
    asked: list[str] = []

    def another_machine() -> None:
        """Adds a machine while the run waits for one."""
        asked.append(placed.lost())
        if len(asked) == 1:
            cluster.add_node(num_cpus=2, num_gpus=1)

    placed.wait_until_complete(another_machine)
    assert asked[0].startswith("machine ") and asked[0].endswith(f" with rank {rank}")
    assert placed.lost() == "" and third.node_id not in {site.node_id for site in placed.sites["actor"]}
    again = TrainGroup(args, placed)
    ray.get(again.ranks[rank].__ray_ready__.remote())
    again.kill()
    free(placed)


@ray.remote(num_cpus=0)
class Peer:
    """A rank that meets others through Ray."""

    def addresses(self) -> list[str]:
        own = psutil.Process().net_connections("inet")
        return sorted({one.laddr.ip for one in own if one.status == psutil.CONN_LISTEN})

    def join(self, meeting: Meeting, rank: int, ranks: int) -> list[object]:
        """Returns the results of a sum, of a group created later and of a checkpoint's plan; then its listening
        addresses."""
        from slime.training.core.distributed import join
        from slime.training.core.objects import gather_json

        join(rank, ranks, False, None, meeting.enter(ranks), one_node=True)
        later = dist.new_group(list(range(ranks)))
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=later)
        dist.barrier()
        return [float(total), gather_json({"rank": rank}), self.addresses()]


def test_ranks_of_several_machines_rendezvous_through_ray_on_its_interface_only(
    cluster: Cluster, tmp_path: Path
) -> None:
    meeting = arrange(tmp_path, 2, several_nodes=True)
    peers = [Peer.remote(), Peer.remote()]  # type: ignore[attr-defined]
    found = ray.get([peer.join.remote(meeting, rank, 2) for rank, peer in enumerate(peers)], timeout=120)
    ours = ray.util.get_node_ip_address()
    # Ray's own worker listens too, and requires a token
    before = set(ray.get(Peer.remote().addresses.remote()))  # type: ignore[attr-defined]
    assert [one[:2] for one in found] == [[1.0, [{"rank": 0}, {"rank": 1}]]] * 2
    assert set().union(*(one[2] for one in found)) - before <= {ours}
    meeting.end()


def test_the_rendezvous_store_waits_for_a_key_until_a_timeout(cluster: Cluster, tmp_path: Path) -> None:
    meeting = arrange(tmp_path, 2, several_nodes=True)
    store = meeting.enter(2)
    assert store is not None
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(TimeoutError, match="no rank has set a within"):
        store.get("a")
    store.set("a", "1")
    assert store.get("a") == b"1" and store.add("a", 2) == 3 and store.check(["a"]) and not store.check(["b"])
    assert store.compare_set("a", "3", "x") == b"x" and store.compare_set("a", "3", "y") == b"x"
    assert store.compare_set("new", "", "first") == b"first" and store.num_keys() == 2
    assert store.delete_key("a") and not store.delete_key("a")
    meeting.end()
