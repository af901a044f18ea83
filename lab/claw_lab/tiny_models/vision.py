"""A small Qwen3-VL with random weights: the same classes and files as the large ones, for tests and runs on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

MARKS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}
"""Tokens that a tokenizer must have, by their names in config.json."""
PATCH, MERGE = 8, 2
"""Pixels of a patch's side; patches along the side of a token."""
TEXT = {
    "hidden_size": 160,
    "intermediate_size": 480,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": [8, 4, 4],
        "mrope_interleaved": True,
    },
}
VISION = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "depth": 4,
    "num_heads": 4,
    "patch_size": PATCH,
    "spatial_merge_size": MERGE,
    "temporal_patch_size": 2,
    "num_position_embeddings": 256,
    "deepstack_visual_indexes": [1, 2],
}


def random_model(
    vocabulary: int,
    ids: dict[str, int],
    seed: int,
    end: int,
    vision: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Any:
    """Returns a Qwen3VLForConditionalGeneration in fp32, by default of some three million parameters.

    Args:
        ids: of the tokens `MARKS`, by their names in config.json.
        end: id of the token that ends an answer.
        vision, changes: of its vision, of its decoder.
    """
    from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration

    torch.manual_seed(seed)
    text = {**TEXT, "vocab_size": vocabulary, "eos_token_id": end, **changes}
    config = Qwen3VLConfig(
        text_config=text,
        vision_config={**VISION, "out_hidden_size": text["hidden_size"], **(vision or {})},
        tie_word_embeddings=True,
        **ids,
    )
    model = Qwen3VLForConditionalGeneration(config)
    model.generation_config = GenerationConfig(eos_token_id=end)
    return model


def save_processor(folder: Path, least: int = 64 * 64, most: int = 256 * 256) -> None:
    """Saves the configuration of image processing: `least` and `most` pixels of a picture after scaling."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    Qwen2VLImageProcessorPil(
        patch_size=PATCH,
        merge_size=MERGE,
        temporal_patch_size=2,
        size={"shortest_edge": least, "longest_edge": most},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    ).save_pretrained(folder)
