"""Engines that serve a policy, the programs that launch them, and the client that drives them.

Every engine speaks SGLang's native HTTP API (`/generate`, `/abort_request`, `/model_info`, ...):

* `slime.backends.launch` starts one engine as a plain server process;
* `slime.backends.control` is the client of the orchestration (health, weights, version and checksum);
* `slime.backends.sglang` launches real SGLang and proves its weight updates;
* `slime.backends.embedded` is the engine that ships with the project (CPU or one GPU).
"""
