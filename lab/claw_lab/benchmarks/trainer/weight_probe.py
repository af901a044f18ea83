"""Measures whether the log-prob probe accepts every correct program, and which faults the probe and the digests
detect.

    bash lab/run.sh benchmarks.trainer.weight_probe MODEL_FOLDER [--draws 200]

On a CPU, one thread, a language model in bf16. A draw of "correct" is another text of the repository's pages, scored
by two correct programs: sdpa, and attention in plain operations. A draw of "stale" is one tensor of a served version
that kept the value of the version before; the versions differ by a step of 1e-5 with random signs. A draw of "wrong"
is a matrix loaded into another layer. Prints one JSON line for each measurement.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from slime.engines.protocol import EngineControlError
from slime.engines.sglang.routes import Loaded, Proof, check_digests, joined
from slime.weights.digests import digest_tensors
from slime.weights.probe import TEXT_LENGTH, Probe, probe_ids

ROOT = Path(__file__).parents[4]
STEP = 1e-5
ROWS = 10
"""Number of texts in one pass."""


def load(folder: str, attention: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, attn_implementation=attention, trust_remote_code=False
    ).eval()


def scores(model: Any, ids: list[int]) -> list[float]:
    """Returns the log-probs [T - 1] of the ids after the first."""
    return scores_of_all(model, [ids])[0]


def scores_of_all(model: Any, rows: Sequence[list[int]]) -> list[list[float]]:
    """Returns the log-probs of several texts of equal length, in one pass."""
    with torch.no_grad():
        tables = model(torch.tensor(rows)).logits.float().log_softmax(-1)
    return [
        [float(table[place, token]) for place, token in enumerate(ids[1:])]
        for table, ids in zip(tables, rows, strict=True)
    ]


def batched(rows: Iterator[list[int]], size: int) -> Iterator[list[list[int]]]:
    while batch := list(islice(rows, size)):
        yield batch


def texts(folder: str, draws: int, seed: int) -> Iterator[list[int]]:
    """Yields ids of different places in the repository's pages, code and prompts in many languages."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    rng = random.Random(seed)
    files = sorted([*ROOT.glob("*.md"), *ROOT.glob("instructions/*.md"), *ROOT.glob("slime/slime/*/*.py")])
    while draws:
        text = rng.choice(files).read_text(encoding="utf-8")
        start = rng.randrange(max(1, len(text) - 800))
        ids = tokenizer.encode(text[start : start + 800], add_special_tokens=False).ids[:TEXT_LENGTH]
        if len(ids) == TEXT_LENGTH:
            draws -= 1
            yield ids


def correct(folder: str, draws: int) -> dict[str, Any]:
    """Measures the difference of two correct programs, and the number of draws that the probe rejects."""
    one, other = load(folder, "sdpa"), load(folder, "eager")
    means, refused = [], 0
    for rows in batched(texts(folder, draws, 0), ROWS):
        for ids, first, second in zip(
            rows, scores_of_all(one, rows), scores_of_all(other, rows), strict=True
        ):
            probe = Probe(ids, first, "bfloat16", True)
            means.append(probe.gap(second))
            refused += probe.difference(second, "bfloat16") is not None
    ids, _ = probe_ids(folder, int(one.get_input_embeddings().weight.shape[0]))
    own = Probe(ids, scores(one, ids), "bfloat16", True).gap(scores(other, ids))
    return {
        "measurement": "correct", "draws": draws, "refused": refused, "mean": sum(means) / draws,
        "median": median(means), "largest": max(means), "of_the_probes_text": own,
    }  # fmt: skip


def stale(folder: str, draws: int) -> dict[str, Any]:
    """Measures how many stale tensors the comparison of SGLang's digests detects, one at a time. In bf16 a step of
    1e-5 does not change vectors near 1."""
    before = {name: x.detach() for name, x in load(folder, "sdpa").named_parameters()}
    torch.manual_seed(0)
    after = {name: step(x) for name, x in before.items()}
    old, new = digest_tensors(before), digest_tensors(after)
    changed = {name for name in old if old[name].digest != new[name].digest}
    artifact: Any = SimpleNamespace(changed=lambda other: changed, shapes=dict.fromkeys(old, ()))
    names = {max(joined(name), key=len) for name in old}
    proof = Proof(Loaded(1, "", artifact), {f"0/{name}": "old" for name in names})
    rng, detected = random.Random(0), 0
    moved = {max(joined(name), key=len) for name in changed}
    for name in rng.choices(sorted(moved), k=draws):
        digests = {f"0/{one}": "old" if one == name else "new" for one in names}
        try:
            check_digests(proof, Loaded(2, "", artifact), digests)
        except EngineControlError:
            detected += 1
    return {
        "measurement": "stale",
        "draws": draws,
        "found": detected,
        "tensors_changed": len(changed) / len(old),
    }


def step(x: Tensor) -> Tensor:
    return (x.float() + STEP * torch.randn(x.shape).sign()).to(x.dtype)


def wrong(folder: str, draws: int) -> dict[str, Any]:
    """Measures how many matrices loaded into another layer the probe alone detects, as when an engine starts."""
    model = load(folder, "sdpa")
    parameters = dict(model.named_parameters())
    ids, of_text = probe_ids(folder, int(model.get_input_embeddings().weight.shape[0]))
    probe = Probe(ids, scores(model, ids), "bfloat16", of_text)
    rng, gaps, detected = random.Random(0), [], 0
    matrices = [name for name, x in parameters.items() if x.dim() == 2 and ".layers." in name]
    for name in rng.choices(matrices, k=draws):
        head, _, rest = name.partition(".layers.")
        tail = rest.partition(".")[2]
        others = [
            one for one in matrices if one != name and one.endswith("." + tail) and one.startswith(head)
        ]
        kept = parameters[name].detach().clone()
        parameters[name].data.copy_(parameters[rng.choice(others)].detach())
        answer = scores(model, ids)
        parameters[name].data.copy_(kept)
        gaps.append(probe.gap(answer))
        detected += probe.difference(answer, "bfloat16") is not None
    return {
        "measurement": "wrong", "draws": draws, "found": detected, "median": median(gaps), "smallest": min(gaps),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="folder of a language model")
    parser.add_argument("--draws", type=int, default=200, help="number of texts, and of stale tensors")
    parser.add_argument("--wrong", type=int, default=50, help="number of matrices from another layer")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for measure, draws in ((stale, args.draws), (correct, args.draws), (wrong, args.wrong)):
        print(json.dumps({"model": Path(args.model).name, **measure(args.model, draws)}), flush=True)


if __name__ == "__main__":
    main()
