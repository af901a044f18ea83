"""LoRA adapters on a shared base model; one batch contains rows of several adapters."""
