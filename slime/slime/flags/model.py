"""Flags: the model and its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import excludes, flag, needs
from slime.flags.shared import not_by_megatron, on_gpus

JOINED = not_by_megatron("its joined matrices do not match the model's weight names")
ALL_ADAPTERS = excludes(
    "use_lora",
    text="{flag}: with LoRA the base is frozen and the adapters are trained; select modules with "
    "--lora-target-modules instead of weight names",
)


@dataclass
class ModelArguments:
    """Model and checkpoints."""

    hf_checkpoint: str = flag(
        "",
        "folder of the Hugging Face model: first weights, tokenizer, configuration",
        env=("HF_CKPT", "MODEL_PATH", "BASE_MODEL_PATH"),
        aliases=("--model-path",),
        main=True,
    )
    ref_load: str = flag(
        "", "folder of the reference model of the KL term (default: --hf-checkpoint)", env=("REF_LOAD",)
    )
    ref_update_interval: int | None = flag(
        None,
        "rollouts between updates of the reference model to the policy's weights (default: never)",
        least=1,
        rules=[
            needs(
                "kl_coef", "kl_loss_coef", text="{flag} needs a reference model: --kl-loss-coef or --kl-coef"
            )
        ],
    )
    attn_implementation: Literal["auto", "varlen", "sdpa", "flex_attention", "flash_attention_2"] = flag(
        "auto",
        "attention of packed sequences: auto: varlen if possible, else sdpa; flash_attention_2 "
        "needs flash-attn",
        rules=[
            excludes(
                actor_num_gpus_per_node=0,
                attn_implementation=("varlen", "flex_attention", "flash_attention_2"),
                text="{flag} {value} needs a GPU; on the CPU use sdpa, which computes the same",
            ),
            excludes(
                "fp32",
                attn_implementation=("varlen", "flash_attention_2"),
                text="{flag} {value} computes in bfloat16; drop --fp32",
            ),
        ],
    )
    fused_layers: Literal["auto", "all", "off"] = flag(
        "auto",
        "fused kernels: auto: norms on GPUs; all: also gated activations and Megatron's residual sums",
    )
    bf16: bool = flag(
        False,
        "compute in bfloat16 over fp32 weights, and serve bfloat16 with the embedded engine (default on GPUs)",
        rules=[excludes("fp32", text="--bf16 and --fp32 are exclusive; drop one of them")],
    )
    fp32: bool = flag(
        False,
        "compute in fp32 on GPUs too",
        rules=[on_gpus("changes the precision on GPUs; CPUs use fp32 without --bf16")],
    )
    only_train_params_name_list: list[str] = flag(
        [],
        "train only weights whose names match this regular expression",
        rules=[
            excludes(
                "freeze_params_name_list",
                text="--only-train-params-name-list and --freeze-params-name-list exclude each other; drop one",
            ),
            ALL_ADAPTERS,
            JOINED,
        ],
    )
    freeze_params_name_list: list[str] = flag(
        [],
        "train all weights except those whose names match this regular expression",
        rules=[ALL_ADAPTERS, JOINED],
    )
    save: str = flag(
        "",
        "folder of checkpoints and weight versions, from which the run resumes (default: "
        "RUN_DIR/checkpoints)",
        env=("SAVE_CKPT", "CKPT_SAVE_DIR"),
        aliases=("--save-dir",),
        main=True,
    )
    load: str | None = flag(
        None,
        "checkpoint(s) or Hugging Face folder to start from, until --save has a checkpoint",
        env=("RESUME_CKPT",),
        aliases=("--resume-from-checkpoint",),
        main=True,
    )
    save_interval: int = flag(
        1, "rollouts between checkpoints; an orderly stop saves one too", least=1, main=True
    )
    keep_checkpoints: int = flag(3, "number of newest checkpoints to keep; 0 keeps all", least=0)
    keep_weights: int = flag(
        3, "number of newest weight versions to keep; 0: all; the live one is always kept", least=0
    )
