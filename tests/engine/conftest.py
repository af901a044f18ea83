"""A tiny random Qwen3 with its tokenizer, an engine process, and plain Hugging Face as the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file

from slime.weights.checksum import weights_checksum

SLIME = str(Path(__file__).parents[2] / "slime")
VOCABULARY = 320
EOS = 3


def save_model(folder: Path, seed: int, tie: bool = True) -> Path:
    """A random Qwen3 (hidden 32, 2 layers), with logits spread enough to make sampling interesting."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=tie,
        max_position_embeddings=4096,
        eos_token_id=EOS,
        initializer_range=0.3,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=EOS, do_sample=True)
    model.save_pretrained(folder)
    _tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return folder


def _tokenizer() -> Any:
    """Byte-level: id 4 + i is a byte, ids above are pairs of letters."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {name: i for i, name in enumerate(["<pad>", "<unk>", "<bos>", "<eos>", *letters])}
    merges = [(a, b) for a in "abcdefgh" for b in "ijklmnop"][: VOCABULARY - len(vocabulary)]
    for a, b in merges:
        vocabulary[a + b] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<pad>", "<unk>", "<bos>", "<eos>")])
    return tokenizer


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"), seed=1)


@pytest.fixture(scope="session")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another version of the same architecture."""
    return save_model(tmp_path_factory.mktemp("other"), seed=2)


_loading = threading.Lock()
"""`from_pretrained` switches tying off for the process while it loads; two at once in threads leave it off."""


def plain_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    with _loading:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()


@pytest.fixture(scope="session")
def reference(model_path: Path) -> Any:
    return plain_model(model_path)


@pytest.fixture(scope="session")
def other_reference(other_weights: Path) -> Any:
    return plain_model(other_weights)


LogProbsOf = Callable[..., torch.Tensor]


@pytest.fixture(scope="session")
def log_probs_of() -> LogProbsOf:
    """f(model, ids, temperature=1.0) -> log_softmax(logits / temperature) [T, V] of a plain forward pass."""

    def log_probs(model: Any, ids: list[int], temperature: float = 1.0) -> torch.Tensor:
        with torch.no_grad():
            return torch.log_softmax(model(torch.tensor([ids])).logits[0].float() / temperature, dim=-1)

    return log_probs


@pytest.fixture(scope="session")
def sampled_log_probs(log_probs_of: LogProbsOf) -> Callable[..., list[float]]:
    """f(model, prompt, output, temperature=1.0) -> the reference log-prob of every output token."""

    def values(model: Any, prompt: list[int], output: list[int], temperature: float = 1.0) -> list[float]:
        table = log_probs_of(model, prompt + output, temperature)
        return [table[len(prompt) - 1 + i, token].item() for i, token in enumerate(output)]

    return values


class Server:
    """An engine process started as users start it."""

    def __init__(self, model: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "slime.engines.launch", "--backend", "embedded"]
        command += ["--model-path", str(model), "--port", "0", *flags]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([SLIME, os.environ.get("PYTHONPATH", "")])},
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.stderr.read())
        self.ready: dict[str, Any] = json.loads(line)
        self.url: str = self.ready["url"]
        self.client = httpx.Client(base_url=self.url, timeout=60.0, trust_env=False)

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.client.post(path, json=body)

    def generate(self, prompt: list[int], *, logprobs: bool = True, **options: Any) -> dict[str, Any]:
        """Request options by name; everything else goes to sampling_params."""
        answer = self.post("/generate", body(prompt, logprobs, **options))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def stream(self, prompt: list[int], **options: Any) -> Iterator[dict[str, Any]]:
        """Parsed chunks of a streamed request; checks the closing [DONE]."""
        with self.client.stream(
            "POST", "/generate", json={**body(prompt, True, **options), "stream": True}
        ) as answer:
            assert answer.status_code == 200, answer.read()
            yield from _lines(answer)

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(timeout=20)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


def _lines(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    done = False
    for line in answer.iter_lines():
        if line == "data: [DONE]":
            done = True
        elif line:
            assert line.startswith("data: ") and not done
            yield json.loads(line.removeprefix("data: "))
    assert done


REQUEST_OPTIONS = {
    "rid",
    "logprob_start_len",
    "input_logprob_temperature",
    "top_logprobs_num",
    "token_ids_logprob",
    "return_text_in_logprobs",
}


def body(prompt: list[int], logprobs: bool = True, **options: Any) -> dict[str, Any]:
    outer = {name: options.pop(name) for name in list(options) if name in REQUEST_OPTIONS}
    return {"input_ids": prompt, "return_logprob": logprobs, "sampling_params": options, **outer}


@pytest.fixture(scope="session")
def server(model_path: Path) -> Iterator[Server]:
    """One engine for all tests; every test leaves version 0 live and nothing running."""
    absent = str(model_path / "no_such_live_weights.json")
    running = Server(
        model_path, "--chunked-prefill-size", "64", "--max-running-requests", "16", "--weights-file", absent
    )
    yield running
    running.close()


@pytest.fixture
def restarted(model_path: Path, other_weights: Path, tmp_path: Path) -> Iterator[Server]:
    """An engine started anew while version 12 is live."""
    checksum = weights_checksum(load_file(other_weights / "model.safetensors"))
    live = tmp_path / "live_weights.json"
    live.write_text(json.dumps({"version": 12, "path": str(other_weights), "checksum": checksum}))
    running = Server(model_path, "--weights-file", str(live))
    yield running
    running.close()
