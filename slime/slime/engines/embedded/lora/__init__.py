"""LoRA adapters on a shared base model: a request names one, and one batch contains rows of several."""
