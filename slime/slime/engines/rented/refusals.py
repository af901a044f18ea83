"""What a request may ask of a service; what most of them cannot do is refused instead of being left out."""

from __future__ import annotations

from slime.engines.rented.model_folder import ModelFolder
from slime.engines.requests import GenerateRequest, RequestError


def check_request(request: GenerateRequest, folder: ModelFolder) -> tuple[list[int], int]:
    """The prompt's ids, and how many new ones the answer may have.

    Raises:
        RequestError: an option that services have no counterpart of, or a prompt that does not fit.
    """
    params = request.sampling_params
    lacking = {
        "top_logprobs_num": request.top_logprobs_num > 0,
        "token_ids_logprob": bool(request.token_ids_logprob),
        "return_text_in_logprobs": request.return_text_in_logprobs,
        "sampling_params.min_p": params.min_p > 0,
        "sampling_params.frequency_penalty, presence_penalty, repetition_penalty, logit_bias": params.changes_logits,
        "sampling_params.stop without a tokenizer.json": bool(params.stop) and folder.tokenizer is None,
    }
    for name, asked in lacking.items():
        if asked:
            raise RequestError(f"{name}: a rented model cannot do that; leave it out")
    if request.input_logprob_temperature != 1.0:
        raise RequestError("input_logprob_temperature: services report log-probs at temperature 1")
    prompt = _prompt(request, folder)
    folder.limits.check(request, prompt)
    return prompt, folder.limits.new_tokens(len(prompt), params.max_new_tokens)


def _prompt(request: GenerateRequest, folder: ModelFolder) -> list[int]:
    if request.input_ids is not None:
        return request.input_ids
    if folder.tokenizer is None:
        raise RequestError("text: the model folder has no tokenizer.json, send input_ids")
    ids: list[int] = folder.tokenizer.encode(request.text or "").ids
    return ids
