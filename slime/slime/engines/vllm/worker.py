"""Extensions of vLLM's workers: load a version, restore tied heads, and compare live weights with the files.

`LiveWeights` is vLLM's `worker_extension_cls`: its methods become the worker's, called by `collective_rpc`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from claw_base.run_folder.records import has_ended
from slime.weights.artifact import weight_files
from slime.weights.digests import in_parallel

HEAD, EMBEDDING = "lm_head", "embed_tokens"
BIT_BY_BIT = ("cpu",)
"""Devices that compare with the memory-mapped files directly. For other devices the files would have to be
copied while requests are paused, so precomputed fingerprints are compared."""
KEPT = 3
"""Number of folders with cached fingerprints: of the live, the next and the last version."""
COLUMNS = 64
"""Columns of a packed weight that are checked, by products with unit vectors: a stale tensor differs in
nearly all."""


WORD = 8
"""Bytes."""
SPAN = 1 << 20
"""Words that are multiplied at a time; later spans are weighted by powers of `STEP`."""
STEP = 0x9E3779B97F4A7C15 - (1 << 64)

Fingerprint = tuple[int, int]


def fingerprint(tensor: Tensor) -> Fingerprint:
    """Returns a hash of a tensor's bytes, equal on every device; collisions have a chance below 2^-48.

    A GPU's memory is read once, without a copy. The hash consists of two sums of the tensor's 8-byte words
    modulo 2^64, each word times a random odd number (multilinear hashing: Lemire and Kaser 2014, arXiv
    1202.4961); one sum is of the words, the other of their upper halves, so that each of the numbers in a
    word changes many bits. It detects stale or damaged data, not forgery.
    """
    flat = words(tensor)
    sums = torch.zeros(2, dtype=torch.int64, device=flat.device)
    whole, halves = keys(str(flat.device))
    for first in range(0, len(flat), SPAN):
        span = flat[first : first + SPAN]
        both_sums = torch.stack(
            [(span * whole[: len(span)]).sum(), ((span >> 32) * halves[: len(span)]).sum()]
        )
        sums = sums * STEP + both_sums
    first_sum, second_sum = sums.tolist()
    return first_sum, second_sum


def words(tensor: Tensor) -> Tensor:
    """Returns the bytes of a tensor as flat int64: eight per word, or one if the size is not a multiple of
    eight."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.nbytes % WORD:
        return flat.view(torch.uint8).to(torch.int64)
    if flat.storage_offset() * flat.itemsize % WORD or flat.data_ptr() % WORD:
        flat = flat.clone()
    return flat.view(torch.int64)


@lru_cache(maxsize=8)
def keys(device: str) -> tuple[Tensor, Tensor]:
    """Returns random odd numbers that are equal on every device and in every process."""
    generator = torch.Generator().manual_seed(0x5EED)
    made = torch.randint(-(1 << 62), 1 << 62, (2, SPAN), generator=generator) * 2 + 1
    whole, halves = made.to(device)
    return whole, halves


class LiveWeights:
    """Methods of a worker; `model_runner` is vLLM's."""

    model_runner: Any
    slime_known: dict[str, tuple[Wanted, Future[None]]]

    def slime_start(self, server: int) -> None:
        """Called once, before the first request. `server`: process id of our server."""
        end_with(server)
        self.slime_known = {}
        from vllm.v1.sample.sampler import Sampler

        sampler = self.model_runner.sampler
        if not isinstance(sampler, Sampler):
            raise TypeError(
                f"this vLLM uses the sampler {type(sampler)}, which cannot be extended with scaled log-probs"
            )
        sampler.__class__ = scaled(type(sampler))

    def slime_load(self, folder: str) -> None:
        """Loads the safetensors files of a folder. No request may run."""
        tensors = read_tensors(folder)
        self.model_runner.reload_weights(weights_iterator=iter(tensors.items()))
        tie_head(self.model_runner.get_model(), self._slime_tied())

    def slime_expect(self, folder: str) -> None:
        """Starts computing the expected values of a folder's files; requests continue meanwhile."""
        model = self.model_runner.get_model()
        expected, done = Wanted(model, read_tensors(folder), self._slime_tied()), Future[None]()
        self.slime_known.pop(folder, None)
        self.slime_known[folder] = expected, done
        while len(self.slime_known) > KEPT:
            del self.slime_known[next(iter(self.slime_known))]
        threading.Thread(target=_expect, args=(model, expected, done), daemon=True).start()

    def slime_expected(self, folder: str) -> bool:
        """Returns whether the computation is finished. Raises an error that occurred meanwhile."""
        done = self.slime_known[folder][1]
        if done.done():
            done.result()
        return done.done()

    def slime_compare(self, folder: str) -> dict[str, Any]:
        """Compares live tensors with a folder: `compared` is the number of equal ones, `wrong` the names of
        the others."""
        model = self.model_runner.get_model()
        known = self.slime_known.get(folder)
        expected = Wanted(model, read_tensors(folder), self._slime_tied()) if known is None else known[0]
        modules, size = dict(model.named_modules()), expected.bytes
        results = in_parallel(lambda name: compare(name, modules[name], expected), list(modules), size)
        right = [name for names, _ in results for name in names]
        return {"compared": len(right), "wrong": [name for _, names in results for name in names]}

    def _slime_tied(self) -> bool:
        return bool(self.model_runner.model_config.hf_text_config.tie_word_embeddings)


def _expect(model: nn.Module, expected: Wanted, done: Future[None]) -> None:
    try:
        for full, live in model.named_parameters(remove_duplicate=False):  # including a tied head
            if live.device.type not in BIT_BY_BIT:
                expected.fingerprints(full, live.dtype)
        done.set_result(None)
    except Exception as error:  # raised when the result is requested
        done.set_exception(error)


def read_tensors(folder: str) -> dict[str, Tensor]:
    return {name: tensor for file in weight_files(Path(folder)) for name, tensor in load_file(file).items()}


def tie_head(model: nn.Module, tied: bool) -> None:
    """Restores the tied head's weight to the embedding's.

    A CPU computes with a packed copy of it, which vLLM's reload does not update: it loads only the embedding,
    and considers the head complete.
    """
    modules = dict(model.named_modules())
    heads = [module for name, module in modules.items() if _leaf(name) == HEAD]
    embeddings = [module for name, module in modules.items() if _leaf(name) == EMBEDDING]
    if not (tied and heads and embeddings):
        return
    head = heads[0]
    head.weight = embeddings[0].weight
    if hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)  # type: ignore[union-attr, operator]


class Wanted:
    """The tensors of an artifact under vLLM's names: some are renamed, some are joined."""

    def __init__(self, model: Any, tensors: Mapping[str, Tensor], tied: bool) -> None:
        mapper = getattr(model, "hf_to_vllm_mapper", None)
        self._joined: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
        self._parts: dict[str, dict[str, Tensor]] = {}
        self._fingerprints: dict[tuple[str, torch.dtype], list[Fingerprint]] = {}
        self.bytes = sum(tensor.nbytes for tensor in tensors.values())
        for name, tensor in tensors.items():
            mapped = name if mapper is None else mapper.map_name(name)
            if mapped is not None:
                self._parts.setdefault(self._joint(mapped), {})[_leaf(_module(name))] = tensor
        if tied:
            shared = [parts for live, parts in self._parts.items() if live.endswith(f"{EMBEDDING}.weight")]
            self._parts |= dict.fromkeys((f"{HEAD}.weight", f"language_model.{HEAD}.weight"), shared[0])

    def __getitem__(self, live: str) -> list[Tensor]:
        """Returns a live tensor's parts, in order of their first dimension; [] if no file has it under a
        known name."""
        parts = self._parts.get(live, {})
        if len(parts) == 1:
            return list(parts.values())
        order = self._joined.get(_leaf(_module(live)), [])
        return [parts[part] for part in order] if parts and set(parts) == set(order) else []

    def fingerprints(self, live: str, dtype: torch.dtype) -> list[Fingerprint]:
        """Returns the fingerprints of its parts in the served dtype."""
        fingerprints = self._fingerprints.get((live, dtype))
        if fingerprints is None:
            fingerprints = self._fingerprints[live, dtype] = [
                fingerprint(part.to(dtype)) for part in self[live]
            ]
        return fingerprints

    def _joint(self, name: str) -> str:
        """Maps `...self_attn.q_proj.weight` to `...self_attn.qkv_proj.weight`, for example."""
        path, _, leaf = _module(name).rpartition(".")
        joint = next(
            (joint for joint, parts in self._joined.items() if leaf in parts and len(parts) > 1), leaf
        )
        return f"{path}.{joint}.{_leaf(name)}" if path else name


def compare(name: str, module: nn.Module, expected: Wanted) -> tuple[list[str], list[str]]:
    """Returns the names of a module's own tensors that are equal, and that differ. Shards and unknown names
    are skipped."""
    right: list[str] = []
    wrong: list[str] = []
    for kind, live in module.named_parameters(recurse=False):
        full = f"{name}.{kind}" if name else kind
        parts = expected[full]
        seen = list(_views(module, full, live, expected)) if parts else []
        if seen:
            (right if all(seen) else wrong).append(full)
    return right, wrong


def _views(module: Any, full: str, live: Tensor, expected: Wanted) -> Iterator[bool]:
    """Yields whether the stored tensor, and the packed copy used in computation, have the expected values.

    They are compared in place, part by part: nothing is concatenated, and no live tensor is moved to another
    device.
    """
    parts = expected[full]
    first, rows = parts[0], sum(map(len, parts))
    if live.shape[1:] == first.shape[1:] and live.shape[0] >= rows:  # vLLM pads vocabularies
        own = live[:rows].split([len(part) for part in parts])  # type: ignore[no-untyped-call]
        if live.device.type in BIT_BY_BIT:
            yield all(torch.equal(piece, part.to(live.dtype)) for piece, part in zip(own, parts, strict=True))
        else:
            yield [fingerprint(piece) for piece in own] == expected.fingerprints(full, live.dtype)
    whole = getattr(module, "input_size_per_partition", first.shape[-1]) == first.shape[-1]
    if _leaf(full) == "weight" and first.ndim == 2 and hasattr(module, "cpu_linear") and whole:
        yield from _computed_with(module, live.dtype, parts)


def _computed_with(module: Any, dtype: torch.dtype, parts: list[Tensor]) -> Iterator[bool]:
    """Yields whether columns of a packed weight are correct: its product with a unit vector is exactly the
    column."""
    rows, width = sum(map(len, parts)), parts[0].shape[1]
    columns = torch.arange(0, width, max(1, width // COLUMNS))
    units = torch.zeros(len(columns), width, dtype=dtype)
    units[torch.arange(len(columns)), columns] = 1
    products = module.quant_method.apply(module, units)
    if products.shape[1] >= rows:
        yield torch.equal(products[:, :rows], torch.cat([part[:, columns] for part in parts]).T.to(dtype))


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _module(name: str) -> str:
    """Returns the module of a tensor's name."""
    return name.rpartition(".")[0]


LOOK_SECONDS = 0.5


def end_with(server: int) -> None:
    """Makes this worker and its parent engine process exit after the process `server`.

    vLLM's engine process would outlive a killed server.
    """
    watched = psutil.Process(server)
    family = [os.getpid()]
    if os.getppid() != server:
        family.insert(0, os.getppid())
    threading.Thread(target=_watch, args=(watched, family), name="lifetime", daemon=True).start()


def _watch(watched: psutil.Process, family: list[int]) -> None:
    while not has_ended(watched):
        time.sleep(LOOK_SECONDS)
    for pid in family:
        os.kill(pid, signal.SIGKILL)


def scaled(sampler: type[Any]) -> type[Any]:
    """Returns vLLM's sampler class with log-probs at the sampling temperature; greedy rows are not scaled.

    These are log_softmax(penalised and biased logits / temperature) before truncation, as in trainer and
    embedded engine. vLLM offers the model's own (temperature 1) or those after top-k and top-p, whose sum
    over the kept tokens is 1; neither can be compared with the trainer's.
    """

    class ScaledLogProbs(sampler):  # type: ignore[misc]
        _scaled: Any = None

        def sample(self, logits: Any, sampling_metadata: Any, *more: Any, **options: Any) -> tuple[Any, Any]:
            needs_log_probs = (
                sampling_metadata.max_num_logprobs is not None or sampling_metadata.logprob_token_ids
            )
            self._needs_log_probs, self._scaled = bool(needs_log_probs), None
            sampled, _ = super().sample(logits, sampling_metadata, *more, **options)
            if needs_log_probs and self._scaled is None:  # all rows are greedy
                self._scaled = self.compute_logprobs(logits)
            return sampled, self._scaled

        def apply_temperature(self, logits: Any, *more: Any, **options: Any) -> Any:
            logits = super().apply_temperature(logits, *more, **options)
            if self._needs_log_probs:
                self._scaled = self.compute_logprobs(logits)
            return logits

    return ScaledLogProbs
