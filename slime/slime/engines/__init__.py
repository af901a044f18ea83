"""Engines that serve a policy, their launchers, and the client that controls them.

Every engine speaks SGLang's native HTTP API (`/generate`, `/abort_request`, `/model_info`, ...):

* `slime.engines.launch` starts one engine as a plain server process;
* `slime.engines.client` is the client of the orchestration (health, weights, version and checksum);
* `slime.engines.sglang` launches real SGLang and proves its weight updates;
* `slime.engines.vllm` hosts vLLM behind the same API;
* `slime.engines.embedded` is the engine that ships with the project (CPU or one GPU);
* `slime.engines.requests` and `slime.engines.json_http` are what both servers of ours take and how they answer.
"""
