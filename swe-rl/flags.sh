# shellcheck shell=bash
# Flags of the SWE track, as arrays for the scripts that source this.
# shellcheck disable=SC2034  # a script uses some of the arrays and variables

SWE=(
  --custom-generate-function-path swe_rl.generate.generate --service-path swe_rl.generate.start
  --input-key text --metadata-key metadata --rollout-shuffle --eval-reward-key acc --advantage-estimator grpo
)
SWE_RL=(
  --num-rollout 500 --rollout-batch-size 8 --n-samples-per-prompt 4 --num-steps-per-rollout 1
  --eps-clip 0.2 --eps-clip-high 0.28 --lr 1e-6 --save-interval 5
)

# swe_defaults: what all scripts on GPUs share. SWE_BENCH_PATH is the folder that swe_rl.prompts wrote, or a file of it.
swe_defaults() {
  SERVES=0 EXAMPLE_DATA=$ROOT/swe-rl/instances/prompts_example.jsonl
  if [ -d "${SWE_BENCH_PATH:-}" ]; then
    [ -f "$SWE_BENCH_PATH/train.jsonl" ] ||
      die "SWE_BENCH_PATH=$SWE_BENCH_PATH holds no train.jsonl: make it with python -m swe_rl.prompts INSTANCES --output-dir FOLDER"
    default PROMPT_DATA "$SWE_BENCH_PATH/train.jsonl"
    default EVAL_DATA "$SWE_BENCH_PATH/heldout.jsonl"
  elif [ -n "${SWE_BENCH_PATH:-}" ]; then
    default PROMPT_DATA "$SWE_BENCH_PATH"
  fi
  case ${ENV_TYPE:-swe} in swe) ;; *) die "ENV_TYPE=$ENV_TYPE: this script trains swe; terminal-rl, toolcall-rl train others" ;; esac
  default PRM_GPUS 0
  default MAX_RESPONSE_LEN 4096
  default CONTEXT_LENGTH 32768
}
