"""Asks the model that plays the people one question: python openclaw-test/test_sglang.py

Env: OPENAI_BASE_URL (http://127.0.0.1:30001/v1), OPENAI_API_KEY or SGLANG_API_KEY, EXTERNAL_MODEL (default: the first).
"""

from __future__ import annotations

import os
import sys

import httpx


def main() -> int:
    url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:30001/v1").rstrip("/")
    key = os.environ.get("OPENAI_API_KEY") or os.environ.get("SGLANG_API_KEY") or "none"
    try:
        with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=60.0) as http:
            listed = http.get(f"{url}/models").raise_for_status().json()["data"]
            model = os.environ.get("EXTERNAL_MODEL") or listed[0]["id"]
            body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32}
            answer = http.post(f"{url}/chat/completions", json=body).raise_for_status().json()
            text = answer["choices"][0]["message"]["content"]
    except (httpx.HTTPError, ValueError, KeyError, IndexError) as error:
        print(f"error: {url} does not answer as it should: {error}", file=sys.stderr)
        return 1
    print(f"{model} at {url}: {text!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
