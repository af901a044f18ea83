"""Evaluation data sets and their settings, from flags or from a YAML file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime.errors import ConfigError
from slime.rollout.dataset import DatasetSpec, training_spec
from slime.rollout.prompts import Columns, PromptFile

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide


@dataclass(frozen=True)
class EvalDataset:
    """One evaluation data set; attributes have the names of the YAML file.

    Attributes:
        path: FILE or FILE@[a:b].
        n_samples_per_eval_prompt: answers per prompt.
        rm_type: reward of all its samples; overrides `--rm-type`.
        metadata_overrides: entries added to the metadata of all its samples.
    """

    name: str
    path: str
    n_samples_per_eval_prompt: int
    temperature: float
    top_p: float
    top_k: int
    max_response_len: int
    max_prompt_len: int | None
    max_context_len: int | None
    input_key: str
    label_key: str | None
    tool_key: str
    metadata_key: str
    reward_key: str | None
    apply_chat_template: bool
    rm_type: str | None = None
    custom_generate_function_path: str | None = None
    metadata_overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def spec(self, args: GenerationSide) -> DatasetSpec:
        return dataclasses.replace(
            training_spec(args),
            source=self.path,
            columns=Columns(self.input_key, self.label_key, self.metadata_key, self.tool_key),
            chat_template=self.apply_chat_template,
            max_prompt_len=self.max_prompt_len,
        )

    def sampling_params(self, training: Mapping[str, object]) -> dict[str, Any]:
        """Returns `training`'s sampling parameters, overridden by this data set's."""
        return {
            **training,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "max_new_tokens": self.max_response_len,
        }


def eval_datasets(args: GenerationSide) -> list[EvalDataset]:
    """Returns the data sets of `--eval-config`, else of `--eval-prompt-data`; none if neither is set.

    Settings are taken from the data set, else from the file's defaults, else from `--eval-*`, else from
    training.

    Raises:
        ConfigError: a file is missing or invalid, a name is duplicate, or a setting is out of range.
    """
    if args.eval_config and args.eval_prompt_data:
        raise ConfigError("--eval-config and --eval-prompt-data cannot be combined; remove one of them")
    entries = _from_file(args.eval_config) if args.eval_config else _from_flag(args.eval_prompt_data)
    datasets = [_dataset(args, entry) for entry in entries]
    names = [dataset.name for dataset in datasets]
    if len(set(names)) < len(names):
        raise ConfigError(f"duplicate names of evaluation data sets: {', '.join(names)}")
    return datasets


def _from_flag(words: list[str]) -> list[dict[str, Any]]:
    if len(words) % 2:
        raise ConfigError(f"--eval-prompt-data needs pairs of NAME and FILE, got {' '.join(words)}")
    return [{"name": name, "path": path} for name, path in zip(words[::2], words[1::2], strict=True)]


def _from_file(path: str) -> list[dict[str, Any]]:
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        section = content["eval"]
        defaults = section.get("defaults") or {}
        return [{**defaults, **dataset} for dataset in section["datasets"]]
    except OSError as error:
        raise ConfigError(f"--eval-config {path}: {error.strerror}") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"--eval-config {path} must contain a list eval.datasets of entries with name and path: {error!r}"
        ) from error


def _dataset(args: GenerationSide, entry: Mapping[str, object]) -> EvalDataset:
    names = {item.name for item in dataclasses.fields(EvalDataset)}
    unknown = sorted(set(entry) - names)
    if unknown or not entry.get("name") or not entry.get("path"):
        wrong = f"unknown settings {', '.join(unknown)}" if unknown else "name and path are needed"
        raise ConfigError(
            f"evaluation data set {entry.get('name')!r}: {wrong}; known: {', '.join(sorted(names))}"
        )
    dataset = EvalDataset(**{**_defaults(args), **entry})
    PromptFile.parse(dataset.path)
    if (
        dataset.temperature < 0
        or not 0 < dataset.top_p <= 1
        or min(dataset.n_samples_per_eval_prompt, dataset.max_response_len) < 1
    ):
        raise ConfigError(
            f"evaluation data set {dataset.name!r}: temperature must be at least 0, top_p above 0 "
            "and at most 1, number and length of answers at least 1"
        )
    return dataset


def _defaults(args: GenerationSide) -> dict[str, Any]:
    context = first(args.eval_max_context_len, args.rollout_max_context_len)
    prompt = first(args.eval_max_prompt_len, args.rollout_max_prompt_len)
    return {
        "n_samples_per_eval_prompt": args.n_samples_per_eval_prompt,
        "temperature": first(args.eval_temperature, args.rollout_temperature),
        "top_p": first(args.eval_top_p, args.rollout_top_p),
        "top_k": first(args.eval_top_k, args.rollout_top_k),
        "max_response_len": first(args.eval_max_response_len, args.rollout_max_response_len),
        "max_context_len": context,
        "max_prompt_len": context - 1 if prompt is None and context is not None else prompt,
        "input_key": first(args.eval_input_key, args.input_key),
        "label_key": first(args.eval_label_key, args.label_key),
        "tool_key": first(args.eval_tool_key, args.tool_key),
        "metadata_key": args.metadata_key,
        "reward_key": first(args.eval_reward_key, args.reward_key),
        "apply_chat_template": args.apply_chat_template,
    }


def first(*values: object) -> Any:
    """Returns the first value that is not None."""
    return next((value for value in values if value is not None), None)
