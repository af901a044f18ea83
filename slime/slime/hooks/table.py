"""The table of hooks, in the order in which a run calls them."""

from __future__ import annotations

from collections.abc import Mapping

from slime.hooks.call import Call, Hook

ROLLOUT = Call(
    "f(args, rollout_id, data_source, evaluation=False) -> RolloutFnTrainOutput | RolloutFnEvalOutput",
    ("args", "rollout_id", "data_source"),
    ("evaluation",),
)

MEGATRON = "called only by Megatron-LM's training loop; slime uses only megatron-core"

_NOT_CALLED = (
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
"""Hooks of the original framework that are rejected, each with the reason."""

_ALL = (
    Hook("rollout_function_path", (ROLLOUT,), "for each rollout, in the rollout manager", "generate_rollout"),
    Hook(
        "eval_function_path",
        (ROLLOUT,),
        "for each evaluation; default: the rollout function",
        "generate_rollout",
    ),
    Hook(
        "custom_generate_function_path",
        (
            Call(
                "async f(args, sample, sampling_params[, evaluation=bool]) -> Sample | list[Sample]",
                ("args", "sample", "sampling_params"),
                ("[evaluation]",),
                may_wait=True,
            ),
        ),
        "for each sample, instead of one request to an engine; `sample.generate_function_path` overrides it",
        "generate",
    ),
    Hook(
        "custom_rm_path",
        (
            Call("async f(args, sample, **kw) -> float | dict", ("args", "sample"), may_wait=True),
            Call(
                "async f(args, samples, **kw) -> list  (with --group-rm)", ("args", "samples"), may_wait=True
            ),
            Call("get_reward_model(config) -> object with .score(prompt, response, next_state)", ("config",)),
        ),
        "after generation, if a sample has no reward yet; `sample.custom_rm_path` overrides it",
        "get_reward_model",
    ),
    Hook(
        "dynamic_sampling_filter_path",
        (Call("f(args, group, **kw) -> DynamicFilterOutput | bool", ("args", "group")),),
        "for each finished group: false drops it, and another prompt takes its place",
        "dynamic_filter",
    ),
    Hook(
        "buffer_filter_path",
        (
            Call(
                "f(args, rollout_id, buffer, num_samples) -> list of groups, removed from the buffer",
                ("args", "rollout_id", "buffer", "num_samples"),
            ),
        ),
        "when groups are taken back from the data source's buffer",
        "buffer_filter",
    ),
    Hook(
        "rollout_sample_filter_path",
        (Call("f(args, groups) -> None, sets sample.remove_sample", ("args", "groups")),),
        "at the end of the default rollout",
        "sample_filter",
    ),
    Hook(
        "rollout_all_samples_process_path",
        (Call("f(args, all_groups, get_samples) -> None", ("args", "all_groups", "get_samples")),),
        "at the end of the default rollout; all_groups includes dropped ones",
        "process_all_samples",
    ),
    Hook(
        "rollout_sample_hook_path",
        (
            Call(
                "f(args, sample, *, rollout_id=None, evaluation=False) -> Sample | None, sync or async",
                ("args", "sample"),
                ("rollout_id", "evaluation"),
                may_wait=True,
            ),
        ),
        "after generation of a sample, before its reward",
        "sample_hook",
        repeatable=True,
    ),
    Hook(
        "data_source_path",
        (Call("class(args) with get_samples, add_samples, save, load", ("args",)),),
        "once, when the rollout manager starts",
        "DataSource",
    ),
    Hook(
        "custom_reward_post_process_path",
        (Call("f(args, samples) -> (raw_rewards, rewards)", ("args", "samples")),),
        "on each batch; the rewards it returns are not normalised again",
        "post_process_rewards",
    ),
    Hook(
        "custom_convert_samples_to_train_data_path",
        (Call("f(args, samples) -> dict of lists, one entry per sample", ("args", "samples")),),
        "on each batch, instead of slime's own conversion",
        "convert_samples_to_train_data",
    ),
    Hook(
        "custom_rollout_log_function_path",
        (
            Call(
                "f(rollout_id, args, samples, extra_metrics, rollout_time) -> bool; true replaces the log of slime",
                ("rollout_id", "args", "samples", "extra_metrics", "rollout_time"),
            ),
        ),
        "after each rollout",
        "log_rollout",
    ),
    Hook(
        "custom_eval_rollout_log_function_path",
        (
            Call(
                "f(rollout_id, args, data, extra_metrics) -> bool; true replaces the log of slime",
                ("rollout_id", "args", "data", "extra_metrics"),
            ),
        ),
        "after each evaluation",
        "log_eval_rollout",
    ),
    Hook(
        "rollout_data_postprocess_path",
        (Call("f(args, rollout_id, rollout_data) -> None", ("args", "rollout_id", "rollout_data")),),
        "on each training process, after log-probs and advantages, before the first step",
        "postprocess_rollout_data",
    ),
    Hook(
        "loss_spec_path",
        (Call("f(args) -> LossSpec", ("args",)),),
        "once when the arguments are checked, and once on each training process",
        "loss_spec",
    ),
    Hook(
        "custom_loss_function_path",
        (
            Call(
                "compute_loss(policy_logits, reference_logits, rewards, advantages, config) -> loss",
                ("policy_logits", "reference_logits", "rewards", "advantages", "config"),
                by_name=True,
            ),
            Call(
                "f(args, batch, logits, sum_of_sample_mean) -> (loss, metrics)",
                ("args", "batch", "logits", "sum_of_sample_mean"),
            ),
            Call("f(args) -> LossSpec, as --loss-spec-path", ("args",), by_name=True),
        ),
        "on each micro-batch; the first form on each sample, with log-probs [T]",
        "compute_loss",
    ),
    Hook(
        "custom_advantage_function_path",
        (Call('f(args, rollout_data) -> None, sets rollout_data["advantages"]', ("args", "rollout_data")),),
        "on each training process, instead of the estimator",
        "compute_advantages",
    ),
    Hook(
        "custom_tis_function_path",
        (
            Call(
                "f(*, args, pg_loss, train_log_probs, rollout_log_probs, loss_masks, total_lengths, response_lengths)"
                " -> (pg_loss, loss_masks, metrics)",
                (),
                (
                    "args",
                    "pg_loss",
                    "train_log_probs",
                    "rollout_log_probs",
                    "loss_masks",
                    "total_lengths",
                    "response_lengths",
                ),
            ),
        ),
        "in the policy loss with --use-tis",
        "custom_tis",
    ),
    Hook(
        "custom_pg_loss_reducer_function_path",
        (
            Call(
                "f(total_lengths, response_lengths, loss_masks, per_token) -> reducer(tensor) -> scalar",
                ("total_lengths", "response_lengths", "loss_masks", "per_token"),
            ),
        ),
        "in the policy loss; the scalar is a sum over samples",
        "pg_loss_reducer",
    ),
    Hook(
        "custom_update_weight_post_write_path",
        (Call("f(args, version_dir, rollout_engines) -> None", ("args", "version_dir", "rollout_engines")),),
        "after a weight version is written, before engines load it",
        "after_weights_are_written",
    ),
    Hook(
        "service_path",
        (Call("start(args, endpoints) -> list of server processes", ("args", "endpoints")),),
        "once, before anything starts; slime starts, watches and restarts the returned servers. An exception ends "
        "the run; if it has `refusal = True`, its message is printed unchanged",
        "start",
        repeatable=True,
    ),
    Hook(
        "on_weights_live_path",
        (
            Call(
                "f(args, rollout_id, version, checkpoint) -> None",
                ("args", "rollout_id", "version", "checkpoint"),
            ),
        ),
        "when every engine has confirmed a weight version",
        "on_weights_live",
    ),
    Hook(
        "gate_samples_path",
        (Call("f(args, rollout_id, version) -> list of samples", ("args", "rollout_id", "version")),),
        "with --gate, before an update is examined",
        "gate_samples",
    ),
    Hook(
        "on_weights_rejected_path",
        (
            Call(
                "f(args, rollout_id, version, rejection) -> None",
                ("args", "rollout_id", "version", "rejection"),
            ),
        ),
        "when the gate has rejected an update, before the trainer goes back",
        "on_weights_rejected",
    ),
    *_NOT_CALLED,
)
HOOKS: Mapping[str, Hook] = {hook.name: hook for hook in _ALL}
