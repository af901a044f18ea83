"""Flags: the model and its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.arguments.declare import flag


@dataclass
class ModelArguments:
    """Model and checkpoints."""

    hf_checkpoint: str = flag(
        "",
        "folder of the Hugging Face model: first weights, tokenizer, configuration",
        env=("HF_CKPT", "MODEL_PATH", "BASE_MODEL_PATH"),
        aliases=("--model-path",),
    )
    ref_load: str | None = flag(
        None, "folder of the reference model of the KL term (default: --hf-checkpoint)", env=("REF_LOAD",)
    )
    ref_update_interval: int | None = flag(
        None, "rollouts after which the reference model takes over the policy's weights (default: never)"
    )
    attn_implementation: Literal["sdpa", "flex_attention", "flash_attention_2"] = flag(
        "sdpa", "attention of packed sequences; all but sdpa need a GPU, the last one flash-attn too"
    )
    bf16: bool = flag(False, "compute in bfloat16 over fp32 weights (default on GPUs)")
    fp32: bool = flag(False, "compute in fp32 on GPUs too")
    only_train_params_name_list: list[str] = flag(  # noqa: RUF009
        [], "train only weights whose names match this regular expression"
    )
    freeze_params_name_list: list[str] = flag(  # noqa: RUF009
        [], "train all but the weights whose names match this regular expression"
    )
    save: str | None = flag(
        None,
        "folder of checkpoints and weight versions; resumed from its latest (default: RUN_DIR/checkpoints)",
        env=("SAVE_CKPT", "CKPT_SAVE_DIR"),
        aliases=("--save-dir",),
    )
    load: str | None = flag(
        None,
        "checkpoint, folder of checkpoints or Hugging Face folder to start from while --save has no checkpoint yet",
        env=("RESUME_CKPT",),
        aliases=("--resume-from-checkpoint",),
    )
    save_interval: int = flag(1, "checkpoint every so many rollouts")
    keep_checkpoints: int = flag(3, "newest checkpoints to keep; 0 keeps all")
    keep_weights: int = flag(3, "newest weight versions to keep; 0 keeps all; the live one always stays")
