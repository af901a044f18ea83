"""The game of guess.py played by a client that needs only an address: any harness can be used like this.

With a gateway that records turns on port 30000:
python slime/train_async.py ... --custom-generate-function-path slime/examples/my_agent/harness.py --reward-key score
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from slime.agents import Outcome, Task
from slime.agents.through_gateway import SessionEndpoint, through_gateway

TURNS = 6
GUESS = {
    "name": "guess",
    "description": "Says whether the number is right, too small or too large.",
    "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}


async def play(endpoint: SessionEndpoint, task: Task) -> Outcome:
    """Asks the model for guesses until one is right."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": str(task.prompt)}]
    number, guesses = int(task.label), 0
    headers = {**endpoint.headers, "Authorization": f"Bearer {endpoint.api_key}"}
    async with httpx.AsyncClient(headers=headers, timeout=300, trust_env=False) as client:
        while guesses < TURNS:
            body = {
                "messages": messages,
                "tools": [{"type": "function", "function": GUESS}],
                **endpoint.sampling,
            }
            answer = await client.post(f"{endpoint.base_url}/chat/completions", json=body)
            message = answer.raise_for_status().json()["choices"][0]["message"]
            if not message.get("tool_calls"):
                break
            call = message["tool_calls"][0]
            guess = json.loads(call["function"]["arguments"]).get("number")
            guesses += 1
            if guess == number:
                return Outcome(1.0 - 0.1 * guesses, True, {"tool_calls": guesses})
            words = "too small" if isinstance(guess, int) and guess < number else "too large"
            messages += [message, {"role": "tool", "tool_call_id": call["id"], "content": words}]
    return Outcome(-1.0, False, {"tool_calls": guesses})


generate = through_gateway(play)
