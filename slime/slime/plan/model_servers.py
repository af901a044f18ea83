"""The engines given by a run's flags, and settings of them that no machine supports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from claw_base.settings.declare import option
from slime.errors import ConfigError
from slime.plan.gate_engine import CPU, gate_engine_of
from slime.plan.model_folder import lacking
from slime.plan.shape import heads_problem, most_tokens, read_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slime.flags.engine import EngineArguments
    from slime.flags.sides import ServingSide

GATE = "gate_engine"
"""Role of an engine that serves only the gate."""
NAMES = {"rollout": "policy", "prm": "judge"}
"""Names of the parts in messages."""
SHARES = {"sglang": ("--sglang-mem-fraction-static", 0.85), "vllm": ("--vllm-gpu-memory-utilization", 0.92)}
"""The flag for an engine's share of a GPU, and its value without the flag."""
STRETCHES = ("override", "rope-scaling", "rope_scaling")
"""Parts of an engine's flag that change the model's configuration."""
LONGER = ("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "VLLM_ALLOW_LONG_MAX_MODEL_LEN")
"""Variables with which engines accept a longer context."""
FOLDERS = {"prm": ("prm_model_path", "prm_hf_checkpoint"), "teacher": ("prm_teacher_hf_checkpoint",)}
"""Flags with the model of a part; the first that is set is used, otherwise the policy's."""


@dataclass(frozen=True)
class ModelServers:
    """Identical engines that serve one model.

    Attributes:
        part: their part of the placement, and the key of their own `--...sglang-` flags.
        prefix: prefix of their names.
        role: an "engine" receives every version of the policy's weights; a `GATE` engine loads candidates.
        count: number of engines; each has `gpus` GPUs (0: CPU).
    """

    part: str
    prefix: str
    role: str
    model: str
    count: int
    gpus: int

    def name_of(self, index: int) -> str:
        return f"{self.prefix}-{index}"

    @property
    def title(self) -> str:
        """Returns the part's name in messages, such as `judge`."""
        return NAMES.get(self.part, self.part)


def model_servers(args: ServingSide) -> list[ModelServers]:
    """Returns the model servers given by the flags: policy, judge, teacher."""
    per_engine = args.rollout_num_gpus_per_engine if args.rollout_num_gpus else 0
    own = 0 if args.rollout_external_engine_addrs else args.engine_count
    servers = [ModelServers("rollout", "engine", "engine", args.hf_checkpoint, own, per_engine)]
    if args.prm_num_gpus:
        gpus = args.prm_num_gpus_per_engine
        servers.append(_judge(model_of(args, "prm"), args.prm_num_gpus // gpus, gpus))
    if args.rented_judge:
        servers.append(_judge(args.hf_checkpoint, 1, 0))
    if gpus := args.prm_teacher_num_gpus:
        model = model_of(args, "teacher")
        servers.append(ModelServers("teacher", "teacher-engine", "teacher_engine", model, 1, gpus))
    if args.gate and gate_engine_of(args) == CPU:
        servers.append(ModelServers("gate", "gate-engine", GATE, args.hf_checkpoint, 1, 0))
    return servers


def _judge(model: str, count: int, gpus: int) -> ModelServers:
    return ModelServers("prm", "judge-engine", "judge_engine", model, count, gpus)


def model_of(args: ServingSide, part: str) -> str:
    """Returns the folder of the model that a part serves."""
    return next(filter(None, (vars(args)[name] for name in FOLDERS[part])), args.hf_checkpoint)


def missing_models(args: ServingSide) -> list[str]:
    """Returns the problems of judge's and teacher's model folders for engines on GPUs, a sentence each."""
    missing = []
    for server in model_servers(args):
        if not server.gpus or server.part not in FOLDERS or server.model == args.hf_checkpoint:
            continue
        if problem := lacking(Path(server.model).expanduser()):
            named = next(name for name in FOLDERS[server.part] if vars(args)[name])
            missing.append(
                f"{option(named)} {server.model} {problem}; give the folder of a Hugging Face model"
            )
    return missing


def check_engines(args: ServingSide, env: Mapping[str, str]) -> None:
    """Raises ConfigError for engines that no machine could start: an invalid share of a GPU, GPUs that do not divide
    a model's heads, or a too long context."""
    if args.debug_train_only or args.rollout_backend not in SHARES:
        return
    for server in model_servers(args):
        if not server.gpus or not server.count:
            continue
        mem_fraction(args, server.part)
        config, name = read_config(server.model)
        if not any(is_on(env.get(one)) for one in LONGER):
            check_context(args, server, config, name)
        heads = {**config, **(config.get("text_config") or {})}.get("num_attention_heads")
        if isinstance(heads, int) and (problem := heads_problem(server.title, server.gpus, heads, name)):
            raise ConfigError(problem)


def check_context(args: ServingSide, server: ModelServers, config: Mapping[str, Any], name: str) -> None:
    """Raises ConfigError for a context longer than the model's, which SGLang and vLLM reject, unless their own flags
    extend it."""
    own = server.part == "prm" and args.prm_context_length
    context, most = own or args.context_length or 0, most_tokens(dict(config))
    words = [*args.engine_words.get("rollout", []), *args.engine_words.get(server.part, [])]
    stretched = any(mark in word for word in words for mark in STRETCHES)
    if not 0 < most < context or stretched:
        return
    flags = (
        "--prm-context-length (PRM_CONTEXT_LENGTH)"
        if server.part == "prm"
        else "--context-length (CONTEXT_LENGTH)"
    )
    raise ConfigError(
        f"the {server.title} engine would have a context of {context} tokens, but {name} supports {most}: set {flags} to "
        f"at most {most}, or extend the model's context (rope_scaling in its config.json)"
    )


def is_on(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "on")


def mem_fraction(args: EngineArguments, part: str = "rollout") -> float:
    """Returns an engine's share of its GPU's memory. Raises ConfigError for an invalid share."""
    name, usual = SHARES.get(args.rollout_backend, SHARES["sglang"])
    words: Sequence[str] = args.engine_words.get("rollout", [])
    if part != "rollout":
        words = [*words, *args.engine_words.get(part, [])]
    shares = [words[i + 1] for i, word in enumerate(words[:-1]) if word == name]
    shares += [word.partition("=")[2] for word in words if word.startswith(name + "=")]
    try:
        share = float(shares[-1]) if shares else usual
    except ValueError:
        raise ConfigError(f"{name} {shares[-1]} is not a number") from None
    if not 0 < share <= 1:
        raise ConfigError(f"{name} {share:g} must be a share of a GPU's memory, above 0 and at most 1")
    return share
