"""Refuses ways to hold and compute a model that do not go together, or not with the machine that trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.arguments import Arguments


def check_model(args: Arguments) -> None:
    """Checks precision, attention, offloading and what is trained.

    Raises:
        ConfigError: what contradicts what, and what to do.
    """
    _check_gpu(args)
    if args.bf16 and args.fp32:
        raise ConfigError("--bf16 and --fp32 are two precisions; drop one of them")
    if args.attn_implementation == "flash_attention_2" and args.fp32:
        raise ConfigError("--attn-implementation flash_attention_2 computes in bfloat16; drop --fp32")
    if args.only_train_params_name_list and args.freeze_params_name_list:
        raise ConfigError(
            "--only-train-params-name-list and --freeze-params-name-list say the same from two sides; drop one"
        )
    if args.use_lora and (args.only_train_params_name_list or args.freeze_params_name_list):
        raise ConfigError(
            "with LoRA the base is frozen and all of the adapters are trained; choose modules by "
            "--lora-target-modules instead of names of weights"
        )
    if args.load_in_4bit and args.ref_update_interval is not None:
        raise ConfigError("--ref-update-interval cannot write into a model in 4 bits; drop --load-in-4bit")
    if args.log_probs_chunk_size == 0 or args.log_probs_chunk_size < -1:
        raise ConfigError(f"--log-probs-chunk-size must be -1 or above 0, got {args.log_probs_chunk_size}")


def _check_gpu(args: Arguments) -> None:
    if args.actor_num_gpus_per_node:
        return
    why = {
        "fsdp_cpu_offload": "--fsdp-cpu-offload moves weights and optimizer states from GPUs to CPU memory",
        "load_in_4bit": "--load-in-4bit computes with bitsandbytes' GPU kernels",
        "fp32": "--fp32 changes the precision of GPUs; on the CPU it is fp32 without --bf16",
    }
    for name, reason in why.items():
        if getattr(args, name):
            raise ConfigError(f"{reason}, and this run trains on the CPU; drop it")
    if args.attn_implementation != "sdpa":
        raise ConfigError(
            f"--attn-implementation {args.attn_implementation} needs a GPU; on the CPU take sdpa, which "
            "computes the same"
        )
