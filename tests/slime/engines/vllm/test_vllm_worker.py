"""Tests the code in vLLM's workers: the comparison of live tensors with files, the tied head, the log-probs."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from slime.engines.vllm import worker
from slime.engines.vllm.worker import SPAN, LiveWeights, Wanted, compare, fingerprint, scaled, tie_head

WIDTH = 8


class Packed:
    """A vLLM quantization method of layers on a CPU: computes with a copy that is made when weights are complete."""

    def process_weights_after_loading(self, layer: Any) -> None:
        kept = layer.weight.detach().clone()
        layer.cpu_linear = lambda x: nn.functional.linear(x, kept)

    def apply(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        return layer.cpu_linear(x)


class Layer(nn.Module):
    def __init__(self, weight: torch.Tensor, packed: bool = False, removed: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone(), requires_grad=False)
        self.quant_method = Packed()
        if packed:
            self.quant_method.process_weights_after_loading(self)
        if removed:
            self.weight = nn.Parameter(torch.empty(0), requires_grad=False)


class Model(nn.Module):
    """Names and fused tensors as in vLLM's Qwen3: the checkpoint's q, k and v are one tensor."""

    packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}  # noqa: RUF012

    def __init__(self, tensors: dict[str, torch.Tensor], packed: bool) -> None:
        super().__init__()
        joint = torch.cat([tensors[f"attn.{part}_proj.weight"] for part in "qkv"])
        padded = torch.cat([tensors["embed_tokens.weight"], torch.zeros(3, WIDTH)])
        self.attn = nn.ModuleDict({"qkv_proj": Layer(joint, packed, removed=packed)})
        self.embed_tokens = Layer(padded)
        self.lm_head = Layer(padded, packed)
        self.lm_head.weight = self.embed_tokens.weight
        self.rotary = nn.Linear(2, 2)


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"attn.q_proj": 4, "attn.k_proj": 2, "attn.v_proj": 2, "embed_tokens": 10}
    return {f"{name}.weight": torch.randn(rows, WIDTH, generator=generator) for name, rows in sizes.items()}


def compared(model: nn.Module, files: dict[str, torch.Tensor]) -> tuple[list[str], list[str]]:
    wanted = Wanted(model, files, tied=True)
    found = [compare(name, module, wanted) for name, module in model.named_modules()]
    return [name for right, _ in found for name in right], [name for _, wrong in found for name in wrong]


ALL = ["attn.qkv_proj.weight", "embed_tokens.weight", "lm_head.weight"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bit_by_bit", [("cpu",), ()], ids=["as on a CPU", "as on a GPU"])
def test_live_tensors_are_compared_with_the_files(
    packed: bool, bit_by_bit: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "BIT_BY_BIT", bit_by_bit)
    files = tensors(1)
    assert compared(Model(files, packed), files) == (ALL, [])
    assert compared(Model(tensors(2), packed), files) == ([], ALL)
    nearly = {**files, "attn.v_proj.weight": files["attn.v_proj.weight"] + 1e-6}
    assert compared(Model(files, packed), nearly) == (ALL[1:], ALL[:1])


def test_a_packed_head_left_stale_by_a_reload_is_detected_and_retied() -> None:
    model, files = Model(tensors(1), packed=True), tensors(2)
    reloaded = Model(files, packed=True)
    model.attn, model.embed_tokens.weight.data = reloaded.attn, reloaded.embed_tokens.weight.data
    assert compared(model, files) == (ALL[:2], ALL[2:])
    tie_head(model, tied=False)
    assert compared(model, files) == (ALL[:2], ALL[2:])
    tie_head(model, tied=True)
    assert compared(model, files) == (ALL, [])


def test_required_gpu_memory_is_known_before_requests_are_paused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between the pause and the first token the files are not read again: the test removes them."""
    monkeypatch.setattr(worker, "BIT_BY_BIT", ())
    files = tensors(1)
    save_file(files, tmp_path / "model.safetensors")
    live = LiveWeights()
    live.slime_known, config = {}, SimpleNamespace(tie_word_embeddings=True)
    live.model_runner = SimpleNamespace(
        get_model=lambda: model, model_config=SimpleNamespace(hf_text_config=config)
    )
    for model, wrong in ((Model(files, packed=False), []), (Model(tensors(2), packed=False), ALL)):
        live.slime_expect(str(tmp_path))
        deadline = time.monotonic() + 60
        while not live.slime_expected(str(tmp_path)):
            assert time.monotonic() < deadline
        read: list[torch.Tensor] = []
        monkeypatch.setattr(worker, "fingerprint", lambda x, read=read: (read.append(x), fingerprint(x))[1])
        monkeypatch.setattr(worker, "read_tensors", None)
        found = live.slime_compare(str(tmp_path))
        monkeypatch.undo()
        monkeypatch.setattr(worker, "BIT_BY_BIT", ())
        assert found == {"compared": len(ALL) - len(wrong), "wrong": wrong}
        own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        assert read and {one.untyped_storage().data_ptr() for one in read} <= own, (
            "live tensors alone are read"
        )


def test_unreadable_files_are_reported_when_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tensor: torch.Tensor) -> None:
        raise OSError("a bad disk")

    monkeypatch.setattr(worker, "BIT_BY_BIT", ())
    monkeypatch.setattr(worker, "fingerprint", fail)
    done: Future[None] = Future()
    worker._expect(Model(tensors(1), False), Wanted(Model(tensors(1), False), tensors(1), True), done)
    with pytest.raises(OSError, match="a bad disk"):
        done.result()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("count", [3, 64, 4 * SPAN + 12])
def test_a_fingerprint_detects_changed_and_swapped_numbers(dtype: torch.dtype, count: int) -> None:
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(1)).to(dtype)
    known, bits = fingerprint(tensor), tensor.view(torch.int16 if dtype == torch.bfloat16 else torch.int32)
    assert fingerprint(tensor.clone()) == known
    assert fingerprint(torch.cat([tensor, tensor])[count:]) == known, "wherever it lies"
    for place in {0, 1, 2, count // 2, count - 1}:
        bits[place] ^= 1
        assert fingerprint(tensor) != known, place
        bits[place] ^= 1
    swapped = tensor.clone()
    swapped[0], swapped[-1] = tensor[-1], tensor[0]
    assert fingerprint(swapped) != known == fingerprint(tensor)


def test_tensor_names_are_mapped_as_in_vllm_and_dropped_or_split_ones_are_omitted() -> None:
    class Mapper:
        def map_name(self, name: str) -> str | None:
            return (
                None
                if name.startswith("vision.")
                else name.removeprefix("language_model.").replace("q_proj", "qkv_proj")
            )

    files = {f"language_model.{name}": tensor for name, tensor in tensors(1).items()}
    model = Model(tensors(1), packed=False)
    model.hf_to_vllm_mapper = Mapper()  # type: ignore[assignment]
    assert compared(model, files | {"vision.weight": torch.ones(1)}) == (ALL, [])
    shard = Model(tensors(1), packed=False)
    shard.attn["qkv_proj"] = Layer(torch.zeros(4, WIDTH))
    assert compared(shard, tensors(1)) == (ALL[1:], [])


class Sampler:
    """The steps of vLLM's sampler around ours."""

    compute_logprobs = staticmethod(lambda logits: logits.log_softmax(-1))

    @staticmethod
    def apply_temperature(logits: torch.Tensor, temperature: torch.Tensor, all_random: bool) -> torch.Tensor:
        return logits.div_(torch.where(temperature == 0, 1.0, temperature)[:, None])

    def sample(self, logits: torch.Tensor, metadata: Any) -> tuple[torch.Tensor, None]:
        if not bool(metadata.temperature.any()):
            return logits.argmax(-1), None
        logits = self.apply_temperature(logits, metadata.temperature, False)
        logits[:, 2:] = -torch.inf  # top-k
        return logits.argmax(-1), None


class Metadata:
    def __init__(self, temperatures: list[float], best: int | None = 0) -> None:
        self.temperature, self.max_num_logprobs = torch.tensor(temperatures), best
        self.logprob_token_ids: dict[int, list[int]] = {}


def test_log_probs_are_scaled_by_the_temperature_and_not_truncated() -> None:
    logits, sampler = torch.randn(3, 5), scaled(Sampler)()
    for temperatures in ([0.5, 2.0, 0.0], [0.0, 0.0, 0.0]):
        _, found = sampler.sample(logits.clone(), Metadata(temperatures))
        divisors = torch.tensor([value or 1.0 for value in temperatures])[:, None]
        assert torch.equal(found, (logits / divisors).log_softmax(-1))
    assert sampler.sample(logits.clone(), Metadata([1.0, 1.0, 1.0], None))[1] is None


START = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {!r}]); time.sleep(60)"
WORK = """
import os, psutil, time
from slime.engines.vllm.worker import end_with
engine = psutil.Process(os.getppid())
end_with(engine.ppid())
print(engine.pid, os.getpid(), flush=True)
time.sleep(60)
"""


def test_engine_and_worker_end_when_their_server_is_killed() -> None:
    command = [sys.executable, "-c", START.format(START.format(WORK))]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    left = [psutil.Process(int(pid)) for pid in server.stdout.readline().split()]
    server.kill()
    server.wait()
    _, alive = psutil.wait_procs(left, timeout=20)
    server.stdout.close()
    assert len(left) == 2 and alive == []
