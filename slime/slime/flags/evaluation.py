"""Flags: evaluation during training."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import excludes, flag, needs
from slime.flags.shared import DEFAULT_ROLLOUT, FINE_TUNING

EVALUATED = needs(
    "eval_interval",
    text="{flag} has no effect without --eval-interval; set both",
)


@dataclass
class EvaluationArguments:
    """Evaluation. The defaults are the values for training."""

    eval_interval: int | None = flag(
        None,
        "rollouts between evaluations (default: never)",
        least=1,
        rules=[
            excludes(
                rollout_function_path=FINE_TUNING,
                without=["eval_function_path"],
                text=(
                    "supervised fine-tuning has no answers to evaluate; set --eval-function-path "
                    f"{DEFAULT_ROLLOUT}"
                ),
            ),
            excludes(
                "debug_train_only",
                without=["eval_function_path"],
                text="{flag} would change nothing: --debug-train-only starts no engine to evaluate; drop one of them",
            ),
        ],
        main=True,
    )
    eval_prompt_data: list[str] = flag(
        [], "NAME FILE [NAME FILE ...]: evaluation data sets", rules=[EVALUATED], main=True
    )
    eval_config: str | None = flag(
        None,
        "YAML file with eval.defaults and eval.datasets (name, path, own settings)",
        rules=[EVALUATED],
    )
    eval_function_path: str | None = flag(
        None,
        "f(args, rollout_id, data_source, evaluation=True) -> RolloutFnEvalOutput "
        "(default: --rollout-function-path)",
        rules=[EVALUATED],
    )
    skip_eval_before_train: bool = flag(False, "skip the evaluation before the first rollout")
    n_samples_per_eval_prompt: int = flag(1, "answers per prompt", least=1)
    eval_temperature: float | None = flag(None, "sampling temperature; 0: greedy")
    eval_top_p: float | None = flag(None, "as --rollout-top-p")
    eval_top_k: int | None = flag(None, "as --rollout-top-k")
    eval_max_response_len: int | None = flag(None, "maximum tokens of an answer")
    eval_max_prompt_len: int | None = flag(
        None, "maximum tokens of a prompt; longer ones are skipped and counted"
    )
    eval_max_context_len: int | None = flag(None, "maximum tokens of prompt and answer together")
    eval_input_key: str | None = flag(None, "column with the prompt")
    eval_label_key: str | None = flag(None, "column with the reference answer")
    eval_tool_key: str | None = flag(None, "column with tool definitions")
    eval_reward_key: str | None = flag(None, "name of the reward reported as the score")
    log_passrate: bool = flag(
        False,
        "log passrate/*: pass@k of training groups, with rewards of 1 or more as passes",
    )
