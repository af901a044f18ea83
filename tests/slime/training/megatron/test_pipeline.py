"""Tests the messages of pipeline stages, and their number: passes over many packs, and the export of weights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.fakes.fixtures import MakeArgs, MakeSamples, RunRanks

RANKS = """
import pickle, sys
import torch
import torch.distributed as dist
from slime.training.core.packing import pack
from slime.training.megatron import MegatronTrainer
folder = sys.argv[1]
torch.set_num_threads(1)
args, samples = pickle.load(open(folder + "/order", "rb"))
told = {"broadcast": 0, "send": 0}


def counted(name):
    plain = getattr(dist, name)

    def call(*words, **more):
        told[name] += 1
        return plain(*words, **more)

    setattr(dist, name, call)


def work(rank):
    for name in told:
        counted(name)
    trainer = MegatronTrainer(args, rank, 4, init_method=f"file://{folder}/meet")
    trainer.load()
    packs = [pack(samples[i : i + 2], torch.device("cpu"), only_trained=False) for i in range(0, 8, 2)]
    told["broadcast"] = 0
    together = trainer.model.of_all(packs)
    of_all = told["broadcast"]
    alone = [trainer.model.distribution(packed).log_probs(packed.targets) for packed in packs]
    values = trainer.critic.model.of_all(packs)
    each = [trainer.critic.model.values(packed) for packed in packs]
    told["send"] = 0
    tensors = {name: tensor.clone() for name, tensor in trainer.whole_weights(None).tensors}
    equal = all(torch.equal(a, b) for a, b in zip([*together, *values], [*alone, *each], strict=True))
    nothing = trainer.model.of_all([])
    found = of_all, equal, nothing, told["send"], len(tensors)
    pickle.dump(found, open(f"{folder}/result{rank}", "wb"))
    trainer.close()
"""


def test_stages_process_all_packs_before_results_are_sent_and_send_weights_in_buckets(
    make_args: MakeArgs, make_samples: MakeSamples, run_ranks: RunRanks
) -> None:
    args = make_args(pipeline_model_parallel_size=2, advantage_estimator="ppo")
    results = run_ranks(RANKS, (args, make_samples(8)))
    assert [told[:3] for told in results] == [(1, True, [])] * 4
    # Its content, and the end of the list, are texts: each a length and its bytes
    assert sum(told[3] for told in results) == 1 + 2 * 2, "one bucket of all tensors of the last stage"
    assert sorted(told[4] for told in results)[-1] > 20


@pytest.mark.parametrize("bucket", [16, 100, 10**6])
def test_tensors_of_any_size_and_dtype_round_trip_through_buckets(
    monkeypatch: pytest.MonkeyPatch, bucket: int
) -> None:
    from slime.training.megatron import weights

    monkeypatch.setattr(weights, "BUCKET", bucket)
    kinds = (torch.bfloat16, torch.float32, torch.bfloat16, torch.float64)
    given = {f"weight{i}": torch.randn(i + 1, 3, dtype=kind) for i, kind in enumerate(kinds)}

    def taken(dtype: torch.dtype | None) -> Iterator[tuple[str, torch.Tensor]]:
        for heads, flat in weights._buckets(given.items(), dtype):
            arrived = flat.clone()
            yield from ((head.name, head.of(arrived)) for head in heads)

    for dtype in (None, torch.bfloat16):
        found = dict(taken(dtype))
        assert found.keys() == given.keys()
        assert all(torch.equal(found[name], x.to(dtype or x.dtype)) for name, x in given.items())
