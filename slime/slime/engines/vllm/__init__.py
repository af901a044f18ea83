"""vLLM as the engine: hosted by a small server of ours that runs in vLLM's own Python (`--engine-python`).

vLLM's HTTP API returns neither exact log-probs at the sampling temperature nor information about its weights, so its
engine (`AsyncLLM`) is controlled from Python instead, behind the embedded engine's protocol.

* in our Python: `launch` (starts it, with flags checked by vLLM itself);
* in vLLM's Python: `child` (its flags), `host` (the process), `server` (routes), `engine` (what of vLLM is called),
  `sampling` (what a request asks of vLLM), `answers` (in SGLang's format), `weights` (two-phase update, with proof);
* in vLLM's workers: `worker` (loads weights and compares the live ones with the files), `log_probs` (of which
  distribution log-probs are), `lifetime` (they end with the server).
"""
