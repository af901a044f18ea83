"""Log-probs of a fixed text, which verify that an engine serves a version of the weights.

The trainer may write the expected values to `probe.json` in the version's folder. Otherwise they are computed here
with transformers on the CPU.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from claw_base.files import write_json
from slime.errors import EngineError

FILE = "probe.json"
TEXT = (
    "The harbour wakes before the town does. At five the first boats come in, gulls behind them, and somebody switches "
    "on the light above the scales. Two sisters have run the fish market since 1987; they know every captain by name. "
    "今天的价格比昨天高一点。 def total(prices): return sum(prices)  # in euros"
)
TEXT_LENGTH, LENGTH = 64, 24
"""Number of tokens of the text, and number of fixed ids for a model whose folder has no tokenizer.json."""
TOLERANCES = {"float32": 2e-3, "bfloat16": 0.25, "float16": 0.1}
"""Largest mean difference of log-probs between two correct programs, by dtype of the weights. The limit for the
median, which no single id can move, is half of it. Differences below bfloat16's noise, such as one outdated tensor
after a tiny step, are detected by the tensors' checksums instead."""
TEXT_TOLERANCES = {"float32": 2e-3, "bfloat16": 0.1, "float16": 0.05}
"""The same limits for a text, for which models are more certain. Two bfloat16 programs differ by 0.040 on
Qwen2.5-Coder-0.5B and by 0.037 on SmolLM2-135M (at most 0.079 on 200 other texts). On 24 random ids they differ by
0.26 (up to 0.96) and 0.075 on average."""
_computing = threading.Lock()


@dataclass(frozen=True)
class Probe:
    """`ids` [T] and the natural log-probs [T - 1] of each id given the ids before it. `of_text`: the ids are those of
    `TEXT`. `limit`: a tolerance that replaces the default one; it is not stored in files."""

    ids: list[int]
    log_probs: list[float]
    dtype: str
    of_text: bool = False
    limit: float | None = None

    def gap(self, log_probs: list[float]) -> float:
        """Returns the mean absolute difference from an engine's log-probs [T] in nats; infinite if the lengths
        differ."""
        if len(log_probs) != len(self.log_probs):
            return float("inf")
        gap = sum(abs(a - b) for a, b in zip(self.log_probs, log_probs, strict=True)) / len(log_probs)
        return gap if gap == gap else float("inf")

    def allowed(self, engine_dtype: str | None) -> float:
        """Returns the tolerance for an engine that computes in this dtype; None: the engine chooses its dtype, so the
        largest tolerance."""
        if self.limit is not None:
            return self.limit
        known = TEXT_TOLERANCES if self.of_text else TOLERANCES
        return max(known.get(dtype or "", max(known.values())) for dtype in (self.dtype, engine_dtype))

    def difference(self, log_probs: list[float], engine_dtype: str | None) -> str | None:
        """Returns a message if the difference from an engine's log-probs exceeds the tolerance; else None."""
        mean, allowed = self.gap(log_probs), self.allowed(engine_dtype)
        if mean <= allowed:
            return None
        if not math.isfinite(mean):
            return f"the engine returned {len(log_probs)} log-probs, or values that are not numbers"
        middle = median(abs(a - b) for a, b in zip(self.log_probs, log_probs, strict=True))
        if middle <= allowed / 2:
            return None
        return (
            f"log-probs of a known text differ by {mean:.3g} on average ({allowed:g} is allowed) and by {middle:.3g} in "
            f"the median ({allowed / 2:g}; --weight-probe-limit): trainer {_shown(self.log_probs)}, "
            f"engine {_shown(log_probs)}"
        )


def _shown(log_probs: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in log_probs[:6]) + ", ..."


def probe_ids(folder: str | Path, vocabulary: int) -> tuple[list[int], bool]:
    """Returns the ids whose log-probs are compared, always the same for a model, and whether they are those of
    `TEXT`. On random ids small models are so uncertain that two correct programs can differ as much as two models.

    Args:
        folder: folder of the model, for its tokenizer.json.
        vocabulary: number of ids; all ids are less.
    """
    file = Path(folder) / "tokenizer.json"
    if file.is_file():
        from tokenizers import Tokenizer

        ids = Tokenizer.from_file(str(file)).encode(TEXT, add_special_tokens=False).ids[:TEXT_LENGTH]
        if len(ids) >= LENGTH and max(ids) < vocabulary:
            return ids, True
    return [(7919 * (position + 1) ** 2 + 31) % vocabulary for position in range(LENGTH)], False


def measure(model: Any, folder: str | Path, vocabulary: int, device: Any = "cpu") -> Probe:
    """Returns the probe of a model with transformers' interface: `model(input_ids).logits` [1, T, V]. Other arguments
    as in `probe_ids`."""
    import torch

    ids, of_text = probe_ids(folder, vocabulary)
    with torch.no_grad():
        table = torch.log_softmax(model(torch.tensor([ids], device=device)).logits[0].float(), dim=-1)
    log_probs = [table[place, token].item() for place, token in enumerate(ids[1:])]
    return Probe(ids, log_probs, str(next(model.parameters()).dtype).removeprefix("torch."), of_text)


def write_probe(folder: Path, probe: Probe) -> None:
    write_json(folder / FILE, {name: value for name, value in asdict(probe).items() if name != "limit"})


def expected_probe(folder: str) -> Probe:
    """Returns the values that a folder's weights must produce.

    Raises:
        EngineError: `probe.json` is corrupt, or transformers cannot load the folder.
    """
    file = Path(folder) / FILE
    if file.is_file():
        try:
            return Probe(**json.loads(file.read_text()))
        except (ValueError, TypeError) as error:
            raise EngineError(f"{file} is not a probe (ids, log_probs, dtype): {error!r}") from error
    stamps = tuple(path.stat().st_mtime_ns for path in sorted(Path(folder).glob("*.safetensors")))
    with _computing:
        return _computed(folder, stamps)


@lru_cache(maxsize=4)
def _computed(folder: str, stamps: tuple[int, ...]) -> Probe:
    import torch
    from transformers import AutoConfig
    from transformers.initialization import no_init_weights

    from slime.utils.decoders import language_part
    from slime.vision.models import model_class, seeing_config

    try:
        config = seeing_config(
            language_part(AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False))
        )
        with no_init_weights():  # initializing all weights randomly takes longer than reading them
            model = model_class(config).from_config(config, dtype=config.dtype or torch.float32).eval()
        missing = _fill(model, Path(folder))
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise EngineError(f"{folder} cannot be loaded to compute its expected output: {error}") from error
    if missing:
        raise EngineError(f"{folder} lacks {', '.join(missing[:3])}; its expected output cannot be computed")
    return measure(model, folder, int(model.get_input_embeddings().weight.shape[0]))


def _fill(model: Any, folder: Path) -> list[str]:
    """Loads a folder's weights into a model; returns the names that are missing in the folder.

    It does not use `from_pretrained`, which disables tying for the whole process during loading, because this runs in
    threads.
    """
    from safetensors.torch import load_file

    from slime.utils.decoders import in_memory
    from slime.vision.models import sees

    files = sorted(folder.glob("*.safetensors"))
    weights = in_memory(
        {name: x for file in files for name, x in load_file(file).items()}, sees(model.config)
    )
    model.load_state_dict(weights, strict=False)
    tied = {"lm_head.weight"} if model.config.get_text_config().tie_word_embeddings else set()
    model.tie_weights()
    return sorted(set(model.state_dict()) - set(weights) - tied)
