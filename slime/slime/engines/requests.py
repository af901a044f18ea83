"""Request bodies of slime's engine servers: SGLang's native names, validated on arrival."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from slime.errors import EngineError

GREEDY_BELOW = 1e-6
"""A temperature below this means greedy decoding, as in SGLang."""
DEFAULT_NEW_TOKENS = 128


class RequestError(ValueError):
    """A request that this engine cannot serve; the message is sent to the client with HTTP status `status`."""

    status = 400
    code: str | None = None
    """A machine-readable code."""


class RunningRequestError(RequestError):
    """The request id is in use by a running request; after a disconnect, a retry may succeed."""

    status = 409


class UnknownAdapterError(RequestError):
    """The request names an adapter that is not loaded; the client may load it and retry."""

    status = 404
    code = "adapter_not_loaded"


class WeightsError(EngineError):
    """Weights were rejected or could not be made live; the message names the live weights."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SamplingParams(_Body):
    """Sampling options of one request.

    Attributes:
        max_new_tokens: default 128 tokens, or less if the context is nearly full.
        top_k: -1 allows the whole vocabulary.
        seed: (or `sampling_seed`) makes the request reproducible, whatever else is in its batch.
        json_schema: JSON schema; restricts the answer to one line of JSON that matches it.
    """

    max_new_tokens: int | None = Field(default=None, ge=0)
    temperature: float = Field(default=1.0, ge=0.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=-1, ge=-1)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    frequency_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    presence_penalty: float = Field(default=0.0, ge=-2.0, le=2.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=2.0)
    logit_bias: dict[int, float] = Field(default_factory=dict)
    json_schema: str | None = None
    stop: list[str] = Field(default_factory=list)
    stop_token_ids: list[int] = Field(default_factory=list)
    ignore_eos: bool = False
    seed: int | None = None
    sampling_seed: int | None = None
    skip_special_tokens: bool = True
    no_stop_trim: bool = False

    @field_validator("stop", mode="before")
    @classmethod
    def _stop_list(cls, value: object) -> Any:
        return [] if value is None else [value] if isinstance(value, str) else value

    @field_validator("stop_token_ids", mode="before")
    @classmethod
    def _stop_ids(cls, value: object) -> Any:
        return [] if value is None else value

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _bias(cls, value: object) -> Any:
        return {} if value is None else value

    @field_validator("stop")
    @classmethod
    def _no_empty_stop(cls, value: list[str]) -> list[str]:
        if "" in value:
            raise ValueError("a stop string must not be empty")
        return value

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def changes_logits(self) -> bool:
        """Returns whether a bias or a penalty applies."""
        return bool(
            self.logit_bias
            or self.frequency_penalty
            or self.presence_penalty
            or self.repetition_penalty != 1.0
        )

    @property
    def truncates(self) -> bool:
        """Returns whether tokens are excluded before sampling."""
        return not self.greedy and (self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0)


class ImageData(_Body):
    """A processed image, which replaces tokens of `input_ids` from `start` on.

    `data` is base64 of `slime.vision.files.ProcessedImage.to_bytes`. Only the embedded engine accepts these.
    """

    start: int = Field(ge=0)
    data: str


class GenerateRequest(_Body):
    """Body of `POST /generate`. Exactly one of `input_ids` and `text` is set.

    Attributes:
        image_data: as in SGLang, data URLs of pictures, each with one mark in `input_ids`, which the engine repeats
            for every token of the picture; or processed images, whose tokens `input_ids` contains.
        logprob_start_len: first prompt position whose log-prob is returned, -1 for none.
        input_logprob_temperature: divisor of the logits for prompt log-probs (1.0: the model itself, as in
            SGLang, which has no such field); the answer's `meta_info` repeats it.
        join_key: if the connection is lost, sampling continues for a while; the same request with `join` then
            gets the answer from its beginning. An abort ends it. Only the embedded engine supports this
            (`"joins": true` in its model_info).
        lora_path: name of the adapter, as in SGLang; None: the base model.
        resumed_tokens: number of ids at the end of `input_ids` that are the beginning of the answer, for
            `json_schema`.
        priority: below 0, all other requests are served first (SGLang's field, which SGLang uses only with
            --enable-priority-scheduling; vLLM's engine ignores it).
    """

    input_ids: list[int] | None = None
    text: str | None = None
    image_data: list[ImageData] | list[str] = Field(default_factory=list)
    sampling_params: SamplingParams = Field(default_factory=SamplingParams)
    return_logprob: bool = False
    logprob_start_len: int = Field(default=-1, ge=-1)
    top_logprobs_num: int = Field(default=0, ge=0)
    input_logprob_temperature: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    token_ids_logprob: list[int] | None = None
    return_text_in_logprobs: bool = False
    stream: bool = False
    rid: str | None = Field(default=None, min_length=1)
    join_key: str | None = None
    join: bool = False
    lora_path: str | None = Field(default=None, min_length=1)
    resumed_tokens: int = Field(default=0, ge=0)
    priority: int = 0

    @field_validator("sampling_params", mode="before")
    @classmethod
    def _default_sampling(cls, value: object) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _one_prompt(self) -> GenerateRequest:
        if (self.input_ids is None) == (self.text is None):
            raise ValueError("set exactly one of input_ids and text")
        if self.image_data and self.input_ids is None:
            raise ValueError(
                "image_data needs input_ids instead of text, because positions of images refer to ids"
            )
        return self


class AbortRequest(_Body):
    rid: str | None = None
    abort_all: bool = False

    @model_validator(mode="after")
    def _one_target(self) -> AbortRequest:
        if not self.rid and not self.abort_all:
            raise ValueError("set rid, or abort_all: true")
        return self


class PauseRequest(_Body):
    mode: str = Field(default="abort", pattern="^(abort|retract|in_place)$")


class EmptyRequest(_Body):
    pass


class MemoryRequest(_Body):
    """Body of a request to release or resume memory.

    SGLang's `tags` select parts; this engine supports only weights and KV cache together.
    """

    tags: list[str] | None = None

    @field_validator("tags")
    @classmethod
    def _both_tags(cls, tags: list[str] | None) -> list[str] | None:
        if tags is not None and not {"weights", "kv_cache"} <= set(tags):
            raise ValueError(
                "this engine releases and resumes weights and kv_cache together: set both tags, or omit tags"
            )
        return tags


class SwitchRequest(_Body):
    """A weight version: a whole number, as a string on the wire."""

    weight_version: str

    @field_validator("weight_version", mode="before")
    @classmethod
    def _whole_number(cls, value: object) -> Any:
        text = str(value)
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"must be a whole number such as '4', got {value!r}")
        return str(int(text))

    @property
    def version(self) -> int:
        return int(self.weight_version)


class PrepareRequest(SwitchRequest):
    model_path: str = Field(min_length=1)


ADAPTER_NAME = r"^[^\s:/?#]{1,128}$"


class UnloadAdapterRequest(_Body):
    """SGLang's body of `POST /unload_lora_adapter`."""

    lora_name: str = Field(pattern=ADAPTER_NAME)


class LoadAdapterRequest(UnloadAdapterRequest):
    """SGLang's body of `POST /load_lora_adapter`, with the adapter's version; None: the next version."""

    lora_path: str = Field(min_length=1)
    weight_version: str | None = Field(default=None, pattern=r"^[0-9]{1,18}$")

    @property
    def version(self) -> int | None:
        return None if self.weight_version is None else int(self.weight_version)


class TryRequest(SwitchRequest):
    """Prompts to answer with the prepared weights, or with those in the folder `model_path`.

    With `model_path`, the prepared weights stay unchanged. `drafts` are another version's answers at
    temperature 0; generating equal answers is then cheaper.
    """

    model_path: str | None = None
    prompts: list[list[int]] = Field(min_length=1)
    drafts: list[list[int]] = Field(default_factory=list)
    max_new_tokens: int = Field(ge=1)
    temperature: float = Field(default=0.0, ge=0.0)

    @model_validator(mode="after")
    def _drafts_are_greedy(self) -> Self:
        if self.drafts and self.temperature > 0:
            raise ValueError("drafts: supported only at temperature 0")
        return self


@dataclass(frozen=True)
class ModelLimits:
    """Limits of the served model: tokens of prompt and answer, ids in its vocabulary, whether its engine takes
    images."""

    context_length: int
    vocabulary: int
    images: bool = False

    def check(self, request: GenerateRequest, prompt: list[int]) -> None:
        """Raises RequestError for ids outside the vocabulary or positions outside the prompt."""
        name = "text" if request.input_ids is None else "input_ids"
        if not prompt:
            raise RequestError(f"{name}: the prompt must have at least one token")
        if request.image_data and not self.images:
            raise RequestError("image_data: this engine takes no images; the embedded engine and SGLang do")
        ids = {
            name: prompt,
            "token_ids_logprob": request.token_ids_logprob or [],
            "sampling_params.logit_bias": list(request.sampling_params.logit_bias),
        }
        for field, values in ids.items():
            if values and not (min(values) >= 0 and max(values) < self.vocabulary):
                raise RequestError(f"{field}: ids must be between 0 and {self.vocabulary - 1}")
        if request.top_logprobs_num > self.vocabulary:
            raise RequestError(f"top_logprobs_num: the vocabulary has only {self.vocabulary} tokens")
        if request.logprob_start_len >= len(prompt):
            raise RequestError(
                f"logprob_start_len: {request.logprob_start_len} exceeds the prompt length "
                f"({len(prompt)} tokens)"
            )

    def new_tokens(self, prompt: int, requested: int | None, least: int = 0) -> int:
        """Returns the maximum tokens of an answer after `prompt` tokens; the engine samples at least `least`.

        Raises:
            RequestError: the context is too short.
        """
        room = self.context_length - prompt
        if room < (least if requested == 0 else 1):
            raise RequestError(
                f"the prompt ({prompt} tokens) fills the context of {self.context_length} tokens"
            )
        if requested is not None and requested > room:
            raise RequestError(
                f"the request needs {prompt + requested} tokens ({prompt} prompt + {requested} "
                f"max_new_tokens), but the context has {self.context_length}"
            )
        return min(DEFAULT_NEW_TOKENS, room) if requested is None else requested


def explain(error: ValidationError) -> str:
    """Returns one line that lists every invalid field, for the client."""
    parts = []
    for item in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in item["loc"])
        parts.append(f"{where}: {item['msg']}" if where else item["msg"])
    return "; ".join(parts[:5])
