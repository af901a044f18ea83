#!/usr/bin/env bash
# The new method on the CPU: the arithmetic example with the loss of custom_loss.py.
#   bash slime/examples/my_method/run_tiny_my_method.sh [any flag of slime/train_async.py]
# Variables: RUN_DIR (default runs/arithmetic), PYTHON, MODEL_PATH, and the exported strings CKPT_ARGS ROLLOUT_ARGS OPTIMIZER_ARGS.
set -euo pipefail
METHOD=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# One step a rollout: this loss knows nothing of an older policy, and drifts where it takes several from the same answers.
# shellcheck disable=SC2086  # exported strings, split into words on purpose; what comes last wins
NAME=my_method bash "$METHOD/../arithmetic/grpo.sh" \
  --custom-loss-function-path "$METHOD/custom_loss.py" --pull 0.05 --num-rollout 30 --num-steps-per-rollout 1 \
  ${CKPT_ARGS:-} ${ROLLOUT_ARGS:-} ${OPTIMIZER_ARGS:-} "$@"
