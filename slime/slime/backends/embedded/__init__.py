"""The embedded engine: continuous batching of a Hugging Face model on a CPU or one GPU.

One thread runs the HTTP server (`server.py`), one runs the decode loop (`engine.py`); the rest is plain state
and functions: `scheduler.py` (who runs), `kv_cache.py` (where keys and values live), `attention.py` (one
forward over a ragged batch), `sampler.py`, `weights.py` (two-phase update), `protocol.py` and `answers.py`
(the wire).
"""
