"""LoRA adapters that are served together on one base: a request names one, and one batch holds rows of several."""
