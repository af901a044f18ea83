"""LoRA adapters that are served beside the base: a request names one, and one batch holds rows of several."""
