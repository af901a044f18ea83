"""Before a run: how much memory its parts need, whether a split fits, what a step costs.

`python -m slime.plan --model Qwen3-4B --gpus 8xH100` answers for any model; launch scripts with DRY_RUN=1 answer for
their own arguments. No torch is loaded. Numbers are computed from shapes, not measured; see `slime.plan.memory`.
"""
