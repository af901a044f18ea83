"""Prints how Hermes Agent classifies each error of its clients. Reads cases as JSON."""

from __future__ import annotations

import json
import sys

import anthropic
import openai
from agent.error_classifier import classify_api_error

found = {}
for one in json.load(sys.stdin):
    options = {} if one["temperature"] is None else {"temperature": one["temperature"]}
    messages = [{"role": "user", "content": one["prompt"]}]
    try:
        if one["api"] == "messages":
            client = anthropic.Anthropic(base_url=one["url"], api_key=one["key"], max_retries=0)
            extra = {"extra_body": options} if options else {}
            client.messages.create(model=one["model"], messages=messages, max_tokens=50, **extra)
        else:
            openai_client = openai.OpenAI(base_url=f"{one['url']}/v1", api_key=one["key"], max_retries=0)
            if one["api"] == "chat":
                openai_client.chat.completions.create(model=one["model"], messages=messages, **options)
            else:
                openai_client.responses.create(model=one["model"], input=one["prompt"], **options)
        found[one["name"]] = "answered"
    except (openai.OpenAIError, anthropic.AnthropicError) as error:
        verdict = classify_api_error(error, provider="custom", model=one["model"], context_length=4096)
        found[one["name"]] = "overflow" if verdict.should_compress else verdict.reason.value
print(json.dumps(found))
