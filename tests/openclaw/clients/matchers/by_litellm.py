"""Prints the class that litellm raises for each error, or "retry" if aider is installed and would retry. Reads cases
as JSON."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import litellm

litellm.suppress_debug_info = True
found = {}
for one in json.load(sys.stdin):
    provider = "anthropic" if one["api"] == "messages" else "openai"
    base = one["url"] if one["api"] == "messages" else f"{one['url']}/v1"
    asked = {"api_base": base, "api_key": one["key"], "num_retries": 0, "max_retries": 0}
    if one["temperature"] is not None:
        asked["temperature"] = one["temperature"]
    model = f"{provider}/{one['model']}"
    try:
        if one["api"] == "responses":
            litellm.responses(model=model, input=one["prompt"], max_output_tokens=50, **asked)
        else:
            messages = [{"role": "user", "content": one["prompt"]}]
            litellm.completion(model=model, messages=messages, max_tokens=50, **asked)
        found[one["name"]] = "answered"
    except Exception as error:  # every class of errors is checked
        name = type(error).__name__
        if find_spec("aider") is not None:
            from aider.exceptions import LiteLLMExceptions

            again = LiteLLMExceptions().get_ex_info(error).retry
            name = "retry" if again else name
        found[one["name"]] = name
print(json.dumps(found))
