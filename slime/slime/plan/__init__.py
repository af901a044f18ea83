"""Plans a run: memory of its parts, whether a split fits, and the cost of a step.

`python -m slime.plan --model Qwen3-4B --gpus 8xH100` plans any model; launch scripts with DRY_RUN=1 plan their own
arguments. No torch is loaded. Numbers are computed from shapes, not measured; see `slime.plan.memory`.
"""
