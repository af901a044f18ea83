"""Contract tests for plug-ins: checks before a run whether a function fulfils the contract of a hook.

    python -m slime.contracts --custom-rm-path my_rm.py --dynamic-sampling-filter-path my_filter.py:keep

or in a test of one's own: `from slime.contracts import check; check("custom_rm_path", "my_rm.py")`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from slime.errors import ClawError, ConfigError
from slime.flags import Arguments
from slime.hooks import HOOKS, call_of, load_path

__all__ = ["check"]

ROLLOUT = (
    "custom_rm_path",
    "dynamic_sampling_filter_path",
    "buffer_filter_path",
    "rollout_sample_filter_path",
    "rollout_all_samples_process_path",
    "rollout_sample_hook_path",
    "data_source_path",
    "custom_reward_post_process_path",
    "custom_convert_samples_to_train_data_path",
    "custom_rollout_log_function_path",
    "custom_eval_rollout_log_function_path",
    "custom_update_weight_post_write_path",
    "service_path",
)
TRAINING = (
    "rollout_data_postprocess_path",
    "loss_spec_path",
    "custom_loss_function_path",
    "custom_advantage_function_path",
    "custom_tis_function_path",
    "custom_pg_loss_reducer_function_path",
)
"""These need torch. Hooks in neither list have external effects (engines, a store); only their signature is
checked."""


def check(name: str, path: str, args: Arguments | None = None) -> str:
    """Loads the hook of the flag `name` from `path`, calls it with small invented inputs, and checks the result.

    Args:
        name: a field of the arguments, such as `custom_rm_path`.
        args: arguments that the hook reads; default: those of a run with no flags.

    Returns:
        The checks that passed, as text.

    Raises:
        ConfigError: the contract is violated; the message names the violation.
    """
    if name not in HOOKS:
        raise ConfigError(f"{name} is not a hook; there are {', '.join(HOOKS)}")
    hook = HOOKS[name]
    if hook.refused is not None:
        raise ConfigError(f"{hook.flag}: {hook.refused}")
    args = Arguments() if args is None else args
    setattr(args, name, [path] if hook.repeatable else path)
    function = load_path(name, path)
    call = call_of(hook, function, path).text
    trial = _trial(name)
    if trial is None:
        return f"takes {call}"
    try:
        trial(args, function, path)
    except ClawError as error:
        raise ConfigError(f"{hook.flag} {path}: {error}") from error
    except Exception as error:  # any exception of a plug-in is a result
        raise ConfigError(f"{hook.flag} {path} raised {type(error).__name__}: {error}") from error
    return f"takes {call}, was called, and what it did fits"


def _trial(name: str) -> Callable[[Any, Any, str], None] | None:
    module = "rollout" if name in ROLLOUT else "training" if name in TRAINING else None
    if module is None:
        return None
    trials: dict[str, Callable[[Any, Any, str], None]] = importlib.import_module(
        f"slime.contracts.{module}"
    ).TRIALS
    return trials[name]
