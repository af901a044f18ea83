"""Flags of slime and Megatron-LM that are not ours: taken where they ask for what happens anyway, else refused.

A launch script written for the original framework so learns in one line what to drop or what to write instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.arguments.declare import option
from slime.arguments.upstream.refused_moe import MOE, same_layers
from slime.errors import ConfigError
from slime.hooks import HOOKS

MEGATRON = "belongs to Megatron-LM, of which slime uses megatron-core alone"

NO_ROUTER = (
    "the gateway (--host, --port) is the router: it spreads requests over all engines and keeps a conversation on one; "
    "engines that others run are named by --rollout-external-engine-addrs"
)


@dataclass(frozen=True)
class Foreign:
    """A flag that slime does not have.

    Attributes:
        reason: why, and what to write instead.
        same: values that ask for what happens anyway ("" for a switch); they are taken silently.
    """

    reason: str
    same: tuple[str, ...] = ()


def _many(reason: str, *names: str, same: tuple[str, ...] = ()) -> dict[str, Foreign]:
    return {"--" + name: Foreign(reason, same) for name in names}


FOREIGN: dict[str, Foreign] = {
    **{name: flag for reason, names, same in MOE for name, flag in _many(reason, *names, same=same).items()},
    **_many(
        "weights are read from and written to Hugging Face folders; make one of a torch_dist folder with "
        "tools/convert_torch_dist_to_hf.py",
        "megatron-to-hf-mode",
        same=("bridge",),
    ),
    **_many(MEGATRON, "optimizer", same=("adam",)),
    **_many(MEGATRON, "qkv-format", same=("thd",)),
    **_many(
        "half precision needs scaled gradients, which slime does not have; --bf16 has the range of fp32",
        "fp16",
    ),
    **_many("dropout of the model is off", "attention-dropout", "hidden-dropout", same=("0", "0.0")),
    **_many(
        "it is done anyway", "accumulate-allreduce-grads-in-fp32", "attention-softmax-in-fp32", same=("",)
    ),
    **_many("it is done anyway", "check-weight-update-equal", "use-fault-tolerance", same=("",)),
    **_many("it is the default", "rollout-global-dataset", same=("",)),
    **_many(
        "actor and critic share their processes; give --advantage-estimator ppo alone",
        "critic-num-nodes",
        "critic-num-gpus-per-node",
        same=("0",),
    ),
    **_many(
        "the loss keeps little; see --log-probs-chunk-size, or cut the vocabulary by --tp",
        "recompute-loss-function",
    ),
    **_many(
        "with --optimizer-cpu-offload gradients move when all of them are there",
        "overlap-cpu-optimizer-d2h-h2d",
    ),
    **_many("weights that the optimizer moves, and its states, are fp32", "use-precision-aware-optimizer"),
    **_many(
        MEGATRON,
        "megatron-config-path",
        "model-name",
        "true-on-policy-mode",
        "train-memory-margin-bytes",
        "disable-weights-backuper",
        "data-pad-size-multiplier",
        "enable-mtp-training",
        "allgather-cp",
        "balance-by-flops",
        "use-stateless-adam",
        "ref-ckpt-step",
        "ckpt-step",
        "no-save-optim",
        "no-load-optim",
        "no-load-rng",
        "release-train",
    ),
    **_many("packs are cut by --max-tokens-per-gpu in every pass", "log-probs-max-tokens-per-gpu"),
    **_many("Ray knows the GPUs of each node", "num-gpus-per-node"),
    **_many("gloo on the CPU, NCCL on GPUs", "distributed-backend"),
    **_many("see --train-timeout and the other limits of waiting", "distributed-timeout-minutes"),
    **_many("set the variables before the program starts; training processes inherit them", "train-env-vars"),
    **_many(
        "prefill and decode in different engines need a router between them, and the weights of an engine that only "
        "prefills cannot be proven; use more engines (--rollout-num-gpus) or more GPUs for each "
        "(--rollout-num-gpus-per-engine): the gateway spreads requests over them and keeps a conversation on one",
        "prefill-num-servers",
        same=("0",),
    ),
    **_many(
        "write --sglang-FLAG for the policy's engines, --prm-sglang-FLAG for the judge's, --prm-teacher-sglang-FLAG for "
        "the teacher's",
        "sglang-config",
    ),
    **_many(
        "samples go to the trainer through Ray's object store",
        "rollout-data-transport",
        "use-distributed-post",
    ),
    **_many(
        "each version of the weights goes whole to the engines; with adapters see --ship-adapters",
        "update-weight-mode",
        same=("full",),
    ),
    **_many(
        "each version of the weights goes whole to the engines; with adapters see --ship-adapters",
        "update-weight-delta-encoding",
    ),
    **_many(
        "samples remember which weights sampled them; use --use-tis against the difference",
        "keep-old-actor",
    ),
    **_many(
        "no sample is trimmed: a smaller last step counts the samples it has; see --trim-to-global-batch",
        "use-dynamic-global-batch-size",
        "disable-rollout-trim-samples",
    ),
    **_many("processes are watched all the time; see --health-timeout", "rollout-health-check-interval"),
    **_many("see --health-timeout", "rollout-health-check-timeout", "rollout-health-check-first-wait"),
    **_many("prompts and samples are text; images are not read yet", "multimodal-keys"),
    **_many("each turn is a sample of its own in any case; give turns different indices", "dynamic-history"),
    **_many("a flag is visible to everybody on the machine; set WANDB_API_KEY", "wandb-key"),
    **_many("the critic is kept with --save", "critic-save"),
    **_many("it means two: --offload-train and --offload-rollout", "offload"),
    **_many("it follows from the checkpoint", "start-rollout-id"),
    **_many(
        "the trainer gets the samples as --save-debug-rollout-data keeps them",
        "save-debug-train-data",
        "dump-details",
    ),
    **_many("use --attn-implementation", "attention-backend", same=("auto",)),
    **_many("it has no effect in the original either", "eval-min-new-tokens", "http-proxy"),
    **_many("it belongs to an example that is not here", "rollout-buffer-url"),
    **_many(NO_ROUTER, "use-slime-router"),
    **_many(
        "a judge is a service: give the --service-path that the README of a method names",
        "num-judge-workers",
        "majority-vote-n",
        "majority-vote-threshold",
        "method-path",
        "rl-buffer-dir",
    ),
    **{hook.flag: Foreign(hook.refused) for hook in HOOKS.values() if hook.refused is not None},
}
PREFIXES = {
    "--sglang-router-": Foreign(NO_ROUTER),
    "--sglang-": Foreign("it is an argument of SGLang, which serves with --rollout-backend sglang alone"),
    "--vllm-": Foreign("it is an argument of vLLM, which serves with --rollout-backend vllm alone"),
    "--router-": Foreign(NO_ROUTER),
    "--slime-router-": Foreign(NO_ROUTER),
    "--prm-": Foreign("a judge is a service: give the --service-path that the README of a method names"),
    "--gui-": Foreign(
        "it is read by an example of the original, which brings it with its --rollout-function-path"
    ),
    "--moe-": Foreign(MEGATRON),
    "--ci-": Foreign("it is for the original's own tests"),
}
SHAPE = {
    "num-layers": "num_hidden_layers",
    "hidden-size": "hidden_size",
    "ffn-hidden-size": "intermediate_size",
    "num-attention-heads": "num_attention_heads",
    "num-query-groups": "num_key_value_heads",
    "kv-channels": "head_dim",
    "vocab-size": "vocab_size",
    "norm-epsilon": "rms_norm_eps",
    "rotary-base": "rope_theta",
    "max-position-embeddings": "max_position_embeddings",
    "num-experts": "num_experts",
    "moe-router-topk": "num_experts_per_tok",
    "moe-ffn-hidden-size": "moe_intermediate_size",
}
"""Flags of the model's shape: it is read from config.json, and they must agree with it."""
SHAPE_SWITCHES = (
    "qk-layernorm",
    "swiglu",
    "untie-embeddings-and-output-weights",
    "add-qkv-bias",
    "disable-bias-linear",
    "group-query-attention",
    "use-rotary-position-embeddings",
)
SHAPE_WORDS = {"normalization": "RMSNorm", "position-embedding-type": "rope"}
MIXED_LAYERS = "moe-layer-freq"


def take_foreign(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Takes known flags of the original out of the words that the parser did not understand.

    Returns:
        The words that are left, and the flags of the model's shape with their values.

    Raises:
        ConfigError: a flag that asks for something that does not happen; the message has the reason.
    """
    left: list[str] = []
    shape: dict[str, str] = {}
    for name, value, raw in _pairs(words):
        plain = name.replace("_", "-")
        bare = plain.removeprefix("--")
        if bare in SHAPE or bare in SHAPE_WORDS or bare == MIXED_LAYERS:
            shape[bare] = value
        elif bare in SHAPE_SWITCHES and value == "":
            continue
        elif (foreign := _foreign(plain)) is None:
            left += raw
        elif value not in foreign.same:
            raise ConfigError(f"{name}{' ' if value else ''}{value} is not taken: {foreign.reason}; drop it")
    return left, shape


def _foreign(name: str) -> Foreign | None:
    if name in FOREIGN:
        return FOREIGN[name]
    return next((foreign for prefix, foreign in PREFIXES.items() if name.startswith(prefix)), None)


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """(flag, its value or "", the words of both); a word that belongs to no flag comes alone."""
    position = 0
    while position < len(words):
        name, equals, value = words[position].partition("=")
        raw = [words[position]]
        has_own = not equals and name.startswith("--") and position + 1 < len(words)
        if has_own and not words[position + 1].startswith("--"):
            value = words[position + 1]
            raw.append(value)
        position += len(raw)
        yield name, value, raw


def check_shape(folder: str, shape: dict[str, str]) -> None:
    """Compares flags of the model's shape with its config.json.

    Raises:
        ConfigError: they contradict it.
    """
    if not shape:
        return
    config: dict[str, Any] = json.loads((Path(folder) / "config.json").read_text())
    config |= config.get("text_config") or {}
    config["rope_theta"] = config.get("rope_theta") or (config.get("rope_parameters") or {}).get("rope_theta")
    for name, value in shape.items():
        if name == MIXED_LAYERS and not same_layers(value, config):
            raise ConfigError(f"--{name} {value} contradicts {folder}/config.json; drop it")
        known = SHAPE_WORDS.get(name) or config.get(SHAPE.get(name, ""))
        if known is None or str(known) == value:
            continue
        if name in SHAPE and _number(value) == float(known):
            continue
        raise ConfigError(
            f"{option(name)} {value} contradicts {folder}/config.json, which says {known}; drop it"
        )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def table() -> list[tuple[str, str, str]]:
    """(flag, values that are taken, reason) of all of them, for documents."""
    rows = [
        (name, " ".join(value or "the switch" for value in foreign.same), foreign.reason)
        for name, foreign in FOREIGN.items()
    ]
    rows += [(f"{prefix}*", "", foreign.reason) for prefix, foreign in PREFIXES.items()]
    from_config = "the shape of the model is read from its config.json"
    rows += [
        (option(name), "what config.json says", from_config) for name in (*SHAPE, *SHAPE_WORDS, MIXED_LAYERS)
    ]
    return rows + [(option(name), "the switch", from_config) for name in SHAPE_SWITCHES]
