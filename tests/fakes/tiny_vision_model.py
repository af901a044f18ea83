"""A random Qwen3-VL folder with tokenizer and template; images; transformers' forward pass as the reference."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from claw_lab.tiny_models.vision import MARKS, random_model, save_processor
from slime.types import Sample
from slime.vision.files import read
from tests.fakes.gateway_model import build_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


VOCABULARY, END = 320, 1
SPECIAL = ["<pad>", "<eos>", *MARKS.values()]
TEMPLATE = """{%- for message in messages -%}
<|vision_start|>{{ message.role }}:
{%- if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content %}
{%- if part.type == "image_url" %}<|vision_start|><|image_pad|><|vision_end|>
{%- else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}
{%- if message.role == "assistant" %}<eos>{% endif %}
{%- endfor -%}
{%- if add_generation_prompt %}assistant:{% endif %}"""


def save_vision_model(folder: Path, seed: int, **changes: object) -> Path:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    ids = {name: SPECIAL.index(token) for name, token in MARKS.items()}
    changes = {"initializer_range": 0.1, **changes}
    random_model(VOCABULARY, ids, seed, END, **changes).save_pretrained(folder)
    save_processor(folder, 32 * 32, 64 * 64)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


def picture(width: int, height: int, seed: int = 0) -> str:
    """Returns an image of coloured noise in the form of a chat message."""
    from PIL import Image

    noise = random.Random(seed).randbytes(width * height * 3)
    out = io.BytesIO()
    Image.frombytes("RGB", (width, height), noise).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def message(*parts: str, role: str = "user") -> dict[str, Any]:
    """Returns a message of texts and images."""
    content = [
        {"type": "image_url", "image_url": {"url": part}}
        if part.startswith("data:")
        else {"type": "text", "text": part}
        for part in parts
    ]
    return {"role": role, "content": content}


def load_reference(folder: Path) -> Any:
    from transformers import Qwen3VLForConditionalGeneration

    return Qwen3VLForConditionalGeneration.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def reference_log_probs(model: PreTrainedModel, sample: Sample) -> list[float]:
    """Returns log-probs of the response by transformers alone, which finds images by their tokens and computes
    positions itself."""
    types = torch.zeros(1, len(sample.tokens), dtype=torch.int)
    images: dict[str, Any] = {}
    if sample.images:
        for place in sample.images:
            types[0, place.start : place.end] = 1
        pixels = [read(place.file).pixel_values for place in sample.images]
        grids = torch.tensor([place.grid for place in sample.images])
        images = {"pixel_values": torch.cat(pixels), "image_grid_thw": grids, "mm_token_type_ids": types}
    with torch.no_grad():
        logits = model(torch.tensor([sample.tokens]), **images).logits[0].double() / sample.temperature
    table = torch.log_softmax(logits, -1)
    places: Sequence[int] = range(sample.prompt_length, len(sample.tokens))
    return [float(table[place - 1, sample.tokens[place]]) for place in places]


def save_served_model(folder: Path, seed: int, **changes: object) -> Path:
    """Saves the same model with the tokens and the chat format of Qwen3-VL, which a gateway serves."""
    from tokenizers import AddedToken, Tokenizer

    build_model(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in MARKS.values()])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {name: tokenizer.token_to_id(token) for name, token in MARKS.items()}
    end = tokenizer.token_to_id("<|im_end|>")
    changes = {"initializer_range": 0.1, **changes}
    random_model(tokenizer.get_vocab_size(), ids, seed, end, **changes).save_pretrained(folder)
    save_processor(folder, 32 * 32, 64 * 64)
    return folder
