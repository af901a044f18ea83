"""Engines that serve a policy, their launchers, and the client that controls them.

Every engine supports SGLang's native HTTP API (`/generate`, `/abort_request`, `/model_info`, ...):

* `slime.engines.launch` starts one engine as a server process;
* `slime.engines.client` is the trainer's client (health, weights, version and checksum);
* `slime.engines.sglang` launches SGLang and verifies its weight updates;
* `slime.engines.vllm` hosts vLLM behind the same API;
* `slime.engines.embedded` is the engine included in this project (CPU or one GPU);
* `slime.engines.requests` and `slime.engines.json_http` validate requests and write responses for the last
  two.
"""
