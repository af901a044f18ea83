"""vLLM as the engine: hosted by a small server of this project in vLLM's own Python (`--engine-python`).

vLLM's HTTP API returns neither exact log-probs at the sampling temperature nor information about its weights,
so its engine (`AsyncLLM`) is controlled from Python, behind the embedded engine's protocol.

* in this project's Python: `launch` (starts it, with flags checked by vLLM itself);
* in vLLM's Python: `child` (its flags), `host` (the process), `server` (routes), `engine` (calls of vLLM),
  `sampling` (sampling options), `answers` (SGLang's format), `weights` (verified two-phase updates);
* in vLLM's workers: `worker` (loads weights and compares the live ones with the files), `log_probs`
  (distribution of log-probs), `lifetime` (exit together with the server).
"""
