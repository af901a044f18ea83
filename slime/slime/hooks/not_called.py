"""Rows of hooks of the original that are refused, each with the reason."""

from __future__ import annotations

from slime.hooks.call import Call, Hook

MEGATRON = "it is called by Megatron-LM's training loop, of which slime uses megatron-core alone"

NOT_CALLED = (
    Hook(
        "custom_model_provider_path",
        (Call("f(pre_process, post_process[, vp_stage]) -> GPTModel", ("pre_process", "post_process")),),
        "when the model is built",
        "model_provider",
        refused=MEGATRON,
    ),
    Hook(
        "custom_megatron_init_path",
        (Call("f(args)", ("args",)),),
        "after Megatron's start",
        "init",
        refused=MEGATRON,
    ),
    Hook(
        "custom_megatron_before_log_prob_hook_path",
        (Call("f(args, model, store_prefix)", ("args", "model", "store_prefix")),),
        "before each pass for log-probs",
        "before_log_prob",
        refused=MEGATRON,
    ),
    Hook(
        "custom_megatron_before_train_step_hook_path",
        (
            Call(
                "f(args, rollout_id, step_id, model, optimizer, scheduler)",
                ("args", "rollout_id", "step_id", "model", "optimizer", "scheduler"),
            ),
        ),
        "before each optimizer step",
        "before_train_step",
        refused=MEGATRON,
    ),
    Hook(
        "slime_router_middleware_paths",
        (Call("middleware(app, router=)", ("app",), ("router",)),),
        "around each request of a router",
        "middleware",
        repeatable=True,
        refused="slime has no router of its own; engines are reached directly",
    ),
)
