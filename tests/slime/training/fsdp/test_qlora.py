"""Tests QLoRA from the first step to the resumed run, with the real bitsandbytes on a CPU.

It runs in a separate process with bitsandbytes from a separate folder: wherever that is installed, peft imports it at
every start, which costs each of the suite's processes two seconds.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slime.types import Sample
from tests.fakes.fixtures import MakeSamples

if TYPE_CHECKING:
    from slime.arguments import Arguments


SIDE = Path(sys.prefix) / "side"
"""Folder in which run_tests.sh installs it (tests/requirements-qlora.txt)."""
QLORA: dict[str, Any] = {
    "load_in_4bit": True,
    "use_lora": True,
    "lora_rank": 4,
    "lora_alpha": 8.0,
    "lora_dropout": 0.0,
    "bf16": True,
    "gradient_checkpointing": True,
    "log_probs_chunk_size": 16,
}
RUN = """
import json, pickle, sys
import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM
from slime.training.fsdp import FSDPTrainer
from slime.training.fsdp.offload import to_cpu, to_device

torch.set_num_threads(1)
args, rollouts, folder = pickle.load(open(sys.argv[1], "rb"))
found = {}
trainer = FSDPTrainer(args)
trainer.load()
named = dict(trainer.model.named_parameters())
four = {name: p for name, p in named.items() if hasattr(p, "quant_state")}
found["in four bits"] = [(str(p.dtype), p.requires_grad, isinstance(p, DTensor)) for p in four.values()]
found["trained"] = [name for name, p in named.items() if p.requires_grad]
base = {name: p.data.clone() for name, p in four.items()}
found["metrics"] = [trainer.train(i, rollouts[i]) for i in range(2)]
found["base unchanged"] = all(torch.equal(p.data, base[name]) for name, p in four.items())
trainer.export_weights(folder + "/merged", 1)
found["log-probs"] = trainer.log_probs(rollouts[0])
found["base as it was packed"] = all(torch.equal(p.data, base[name]) for name, p in four.items())
plain = AutoModelForCausalLM.from_pretrained(folder + "/merged", dtype=torch.float32).eval()
found["of the export"] = []
for sample in rollouts[0]:
    with torch.no_grad():
        table = plain(torch.tensor([sample.tokens])).logits[0] / sample.temperature
    rows = table.log_softmax(-1)[sample.prompt_length - 1 : -1]
    ids = torch.tensor(sample.tokens[sample.prompt_length :])
    found["of the export"].append(rows.gather(-1, ids[:, None]).squeeze(-1).tolist())
trainer.export_weights(folder + "/adapter", 2, whole=False)
trainer.save(1, version=1, parent=0)
to_cpu(trainer.parts)
to_device(trainer.parts, trainer.device)
found["after offload"] = trainer.train(2, rollouts[2])
resumed = FSDPTrainer(args)
found["resumed from"] = resumed.load().rollout_id
found["after resume"] = resumed.train(2, rollouts[2])
trainer.close()
print(json.dumps(found))
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if importlib.util.find_spec("bitsandbytes") is None:
        if not (SIDE / "bitsandbytes").is_dir():
            pytest.skip("bitsandbytes is not installed: see tests/requirements-qlora.txt")
        path.append(str(SIDE))

    def run_with(args: Arguments, rollouts: list[list[Sample]]) -> dict[str, Any]:
        order = tmp_path / "order"
        order.write_bytes(pickle.dumps((args, rollouts, str(tmp_path))))
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        command = [sys.executable, "-c", RUN, str(order)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run_with


def test_four_bit_models_train_merge_export_and_resume(
    run: Callable[..., dict[str, Any]],
    write_qwen3: Callable[..., str],
    training_args: Callable[..., Any],
    make_samples: MakeSamples,
    tmp_path: Path,
) -> None:
    folder = write_qwen3(tmp_path / "base", 0, vocab_size=64, hidden_size=64, intermediate_size=128)
    args = training_args(model_folder=folder, lr=1e-2, **QLORA)
    found = run(args, [make_samples(4, seed=i) for i in range(3)])

    assert len(found["in four bits"]) == 14  # seven matrices of two layers
    assert {tuple(kind) for kind in found["in four bits"]} == {("torch.uint8", False, False)}
    assert len(found["trained"]) == 28 and all(".lora_" in name for name in found["trained"])
    assert found["base unchanged"] and found["base as it was packed"]
    assert all(step["grad_norm"] > 0 for step in found["metrics"])
    pairs = zip(found["log-probs"], found["of the export"], strict=True)
    gaps = [abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True)]
    assert sum(gaps) / len(gaps) < 0.03  # bf16 against fp32
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    assert found["resumed from"] == 1
    for name in ("loss", "grad_norm"):
        assert found["after resume"][name] == pytest.approx(found["after offload"][name], rel=1e-3), name
