# shellcheck shell=bash
# Flags of the terminal track, as arrays for the scripts that source this behind gpu.sh.
# shellcheck disable=SC2034  # a script uses some of the arrays and variables

TERMINAL=(
  --custom-generate-function-path terminal_rl.generate.generate --service-path terminal_rl.generate.start
  --input-key task --metadata-key metadata --rollout-shuffle --eval-reward-key acc
)
TERMINAL_RL=(
  --num-rollout 2000 --rollout-batch-size 16 --n-samples-per-prompt 8 --num-steps-per-rollout 2 --save-interval 3
  --n-samples-per-eval-prompt 8 --eval-max-context-len 16384
  --eps-clip-high 0.2 --use-kl-loss --kl-loss-coef 0.01 --kl-loss-type k3 --lr 1e-6
)

# terminal_defaults: what all scripts on GPUs share. Without DATASET_DIR they train on the tasks of this folder; with it, on
# the rows that PROMPT_DATA names, which python -m terminal_rl.convert makes.
terminal_defaults() {
  case ${ENV_TYPE:-terminal} in
    terminal) ;;
    *) die "ENV_TYPE=$ENV_TYPE: this script trains in terminals; unset it, or give terminal" ;;
  esac
  SERVES=0 EXAMPLE_DATA=$ROOT/terminal-rl/data/train.jsonl
  if [ -z "${DATASET_DIR:-}" ]; then
    default PROMPT_DATA "$ROOT/terminal-rl/data/train.jsonl"
    default EVAL_DATA "$ROOT/terminal-rl/data/heldout.jsonl"
  fi
  default DATASET_DIR "$ROOT/terminal-rl/tasks"
  default EVAL_INTERVAL 8
  default PARALLEL_ENVS 32
  default MAX_STEPS 20
  default ROLLOUT_GPUS 4
  default MEM_FRACTION_STATIC 0.6
  default MAX_TOKENS_PER_GPU 16384
  default CONTEXT_LENGTH 16384
}
