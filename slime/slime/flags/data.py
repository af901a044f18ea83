"""Flags: prompts and how they are loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs
from slime.flags.shared import BUFFERED_SOURCE, FINE_TUNING, GENERATING, PLAIN_SOURCE, SOURCES

COUNTS_PASSES = "{flag} counts passes over --prompt-data; use --num-rollout instead"
READ_BY_BUFFER = f"{{flag}} would change nothing: it is read by {BUFFERED_SOURCE}; drop it"


@dataclass
class DataArguments:
    """Prompts: file, columns, order and chat template."""

    prompt_data: str | None = flag(
        None,
        "JSON Lines or Parquet file of prompts; FILE@[a:b] selects rows a to b",
        env=("DATA_PATH",),
        env_unless="disable_rollout_global_dataset",
        rules=[
            excludes(
                "disable_rollout_global_dataset",
                without=["load_debug_rollout_data"],
                text="{flag} is not used with --disable-rollout-global-dataset; drop one of them",
            )
        ],
        main=True,
    )
    data_source_path: str = flag(BUFFERED_SOURCE, "class(args) that provides prompts")
    disable_rollout_global_dataset: bool = flag(
        False, "use no prompt data set, for a rollout function with its own source"
    )
    input_key: str = flag("input", "column with the prompt: a text, or a list of chat messages")
    label_key: str | None = flag(None, "column with the reference answer")
    metadata_key: str = flag("metadata", "column with an optional object for the sample's metadata")
    tool_key: str = flag("tools", "column with optional tool definitions for the chat template")
    apply_chat_template: bool = flag(
        False,
        "render messages (a text becomes one user message) with the model's chat template",
        rules=[
            excludes(
                rollout_function_path=FINE_TUNING,
                text="supervised fine-tuning renders conversations itself; drop {flag}",
            )
        ],
    )
    apply_chat_template_kwargs: str = flag(
        "{}",
        'JSON object of variables for the chat template, such as {"enable_thinking": false}',
        rules=[
            excludes(
                rollout_function_path=GENERATING,
                apply_chat_template=False,
                text="{flag} would change nothing: it needs --apply-chat-template",
            )
        ],
    )
    rollout_shuffle: bool = flag(False, "reshuffle prompts every epoch, by --rollout-seed")
    rollout_seed: int = flag(42, "seed of the order of prompts and of all sampled answers")
    num_epoch: int | None = flag(
        None,
        "passes over --prompt-data; sets --num-rollout if not set (full batches only)",
        least=1,
        rules=[
            excludes("disable_rollout_global_dataset", text=COUNTS_PASSES),
            needs(data_source_path=SOURCES, text=COUNTS_PASSES),
        ],
    )
    rollout_max_prompt_len: int | None = flag(
        None,
        "maximum tokens of a prompt; longer ones are dropped and counted (default: --rollout-max-context-len - 1)",
        least=1,
    )
    rollout_max_context_len: int | None = flag(
        None, "maximum tokens of prompt and answer together; answers are truncated", least=2
    )
    buffer_filter_path: str | None = flag(
        None,
        "f(args, rollout_id, buffer, num_samples) -> groups removed from buffer for reuse (default: "
        "the oldest)",
        rules=[
            excludes("disable_rollout_global_dataset", text=READ_BY_BUFFER),
            excludes(data_source_path=PLAIN_SOURCE, text=READ_BY_BUFFER),
        ],
    )
    loss_mask_type: Literal["qwen", "qwen3", "distill_qwen"] = flag(
        "qwen",
        "fine-tuning targets: every templated answer, every generated answer (thinking kept), or the "
        "last one",
        rules=[
            excludes(
                rollout_function_path=GENERATING,
                text=f"{{flag}} would change nothing: it is for --rollout-function-path {FINE_TUNING}; drop it",
            )
        ],
    )
