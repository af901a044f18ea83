"""vLLM's AsyncLLM over a real tiny model: the calls that our server makes, and faults of engines.

`faults`: "stale_head" (a load skips the LM head), "refuses" (a load raises), "computes_otherwise" (correct tensors,
wrong logits). The head is a separate tensor, like vLLM's packed one on a CPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoTokenizer

from slime.engines.vllm.worker import Wanted, compare, read_tensors

if TYPE_CHECKING:
    from transformers import PreTrainedModel


STEP_SECONDS = 0.005


def make_params(**options: object) -> SimpleNamespace:
    """vLLM's SamplingParams."""
    return SimpleNamespace(**{"stop_token_ids": [], "logprobs": None, "prompt_logprobs": None, **options})


class ClientError(Exception):
    """vLLM's exception for an invalid request; not a ValueError."""


class FakeLLM:
    """`calls` lists the requests, `params` the sampling parameters of each request."""

    def __init__(self, folder: Path, load: Callable[[Path], PreTrainedModel]) -> None:
        self.model = load(folder)
        embedding = self.model.get_input_embeddings().weight
        self.model.lm_head.weight = torch.nn.Parameter(embedding.detach().clone())
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model_config = SimpleNamespace(
            max_model_len=4096, dtype=torch.float32, get_vocab_size=lambda: 320,
            hf_text_config=SimpleNamespace(tie_word_embeddings=True),
        )  # fmt: skip
        self.faults: set[str] = set()
        self.errored = False
        self.version = "default"
        self.goes = asyncio.Event()
        self.goes.set()
        self.running: set[str] = set()
        self.calls: list[str] = []
        self.params: dict[str, SimpleNamespace] = {}

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    async def collective_rpc(self, method: str, args: tuple[Any, ...]) -> list[Any]:
        self.calls.append(method)
        assert (
            method in ("slime_start", "slime_expect", "slime_expected", "slime_compare")
            or not self.goes.is_set()
        )
        if method == "slime_expected":
            return [True]
        if method == "slime_load":
            self._load(read_tensors(args[0]))
        if method == "slime_compare":
            wanted = Wanted(self.model, read_tensors(args[0]), tied=True)
            found = [compare(name, module, wanted) for name, module in self.model.named_modules()]
            wrong = [name for _, names in found for name in names]
            return [{"compared": sum(len(right) for right, _ in found), "wrong": wrong}]
        return [None]

    def _load(self, tensors: dict[str, torch.Tensor]) -> None:
        if "refuses" in self.faults:
            raise RuntimeError("a worker failed")
        stale = "stale_head" in self.faults
        tensors["lm_head.weight"] = (
            self.model.lm_head.weight.data if stale else tensors["model.embed_tokens.weight"]
        )
        self.model.load_state_dict(tensors)

    async def update_weight_version(self, version: str) -> None:
        self.version = version

    async def pause_generation(self, mode: str, clear_cache: bool) -> None:
        self.calls.append(f"pause {mode} {clear_cache}")
        self.goes.clear()
        if mode == "abort":
            self.running.clear()

    async def resume_generation(self) -> None:
        self.calls.append("resume")
        self.goes.set()

    async def abort(self, rid: str) -> None:
        self.running.discard(rid)

    def shutdown(self, timeout: float) -> None:
        self.errored = True

    async def generate(self, prompt: dict[str, Any], params: SimpleNamespace, rid: str) -> Any:
        if params.stop_token_ids == [13]:
            raise ClientError("13 is not taken")
        self.running.add(rid)
        self.params[rid] = params
        ids, starts, prompt_scores = list(prompt["prompt_token_ids"]), [], None
        try:
            for place in range(params.max_tokens):
                await asyncio.sleep(STEP_SECONDS)
                while not self.goes.is_set() and rid in self.running:
                    await asyncio.sleep(STEP_SECONDS)
                if rid not in self.running:
                    yield _output([], [], "abort", _spans(starts, place))
                    return
                table = self._table(ids, params.temperature)
                if place == 0 and params.prompt_logprobs is not None:
                    prompt_scores = _flat([None, *ids[1:]], self._table(ids, 1.0), params.prompt_logprobs)
                token = int(table[-1].argmax() if not params.temperature else table[-1].exp().multinomial(1))
                if not starts or starts[-1][0] != self.version:
                    starts.append((self.version, place))
                ids.append(token)
                stopped = token in params.stop_token_ids
                finish = "stop" if stopped else "length" if place + 1 == params.max_tokens else None
                rows = _flat([token], table[-2:], params.logprobs or 0)
                yield _output([token], rows, finish, _spans(starts, place + 1), prompt_scores, stopped)
                prompt_scores = None
                if finish:
                    return
        finally:
            self.running.discard(rid)

    def _table(self, ids: list[int], temperature: float) -> torch.Tensor:
        with torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits[0]
        logits = logits * (2.0 if "computes_otherwise" in self.faults else 1.0)
        return torch.log_softmax(logits / (temperature or 1.0), dim=-1)


def _spans(starts: list[tuple[str, int]], end: int) -> list[SimpleNamespace]:
    ends = [start for _, start in starts[1:]] + [end]
    return [
        SimpleNamespace(version=version, start=start, end=stop)
        for (version, start), stop in zip(starts, ends, strict=True)
    ]


def _flat(tokens: list[int | None], table: torch.Tensor, best: int) -> SimpleNamespace:
    """FlatLogprobs of a prompt (row i of `table` predicts token i + 1) or of one new token (the last row does)."""
    flat = SimpleNamespace(start_indices=[], end_indices=[], token_ids=[], logprobs=[])
    for place, token in enumerate(tokens):
        flat.start_indices.append(len(flat.token_ids))
        if token is not None:
            row = table[place - 1] if len(tokens) > 1 else table[-1]
            values, ids = row.topk(best)
            flat.token_ids += [token, *ids.tolist()]
            flat.logprobs += [row[token].item(), *values.tolist()]
        flat.end_indices.append(len(flat.token_ids))
    return flat


def _output(
    ids: list[int], rows: Any, finish: str | None, spans: Any, prompt: Any = None, matched: bool = False
) -> SimpleNamespace:
    said = SimpleNamespace(
        token_ids=ids, text="".join("x" for _ in ids), logprobs=rows or None, finish_reason=finish,
        stop_reason=ids[-1] if matched else None, weight_versions=spans if finish else None,
    )  # fmt: skip
    return SimpleNamespace(outputs=[said], prompt_logprobs=prompt, num_cached_tokens=0)
