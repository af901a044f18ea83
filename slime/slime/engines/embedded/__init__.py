"""The embedded engine: continuous batching of a Hugging Face model on a CPU or one GPU.

One thread serves HTTP, one decodes; the rest is plain state and functions.

* the wire: `arguments.py`, `server.py` (routes), `streams.py`, `answers.py`, `text.py`;
* what runs: `service.py` (everything of one engine), `engine.py` (the decode loop), `scheduler.py` (who
  runs), `sequence.py` (one request), `step.py` (inputs of one forward pass);
* the model: `model.py`, `check.py` (may it run here), `weights.py` (two-phase update), `kv_cache.py`
  (who stores where), `slab.py` (buffers), `attention.py` (one forward over a ragged batch), `sampler.py`,
  `penalties.py`.
"""
