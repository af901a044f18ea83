# shellcheck shell=bash
# Sourced by the run_*.sh scripts for GPUs after ROOT is set: code that all models and methods share. A script sets
#   USAGE            its own path, for --help
#   RUN_NAME         folder of the run below runs/
#   MODEL            published name of its model, for models/MODEL and for DRY_RUN without a download
#   METHOD           flags of the method (see its folder's flags.sh)
#   SERVES           1, or 0 for a track: no gateway and no judge; prompts are read from a file (PROMPT_DATA)
#   EXAMPLE_DATA     of a track: a few rows, for DRY_RUN without data
# and, if they differ from those in gpu_defaults, defaults of variables; then it calls run_gpu "$@".
# Arguments are marked with their sources, as in launch.sh.

# shellcheck source-path=SCRIPTDIR source=launch.sh
source "$ROOT/launch/launch.sh"
# shellcheck source-path=SCRIPTDIR source=cluster.sh
source "$ROOT/launch/cluster.sh"

run_gpu() {
  local WORDS=() word
  for word in "$@"; do
    case $word in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$USAGE"; return ;; esac
  done
  # shellcheck disable=SC2206  # exported strings, split into words on purpose
  local given=(${CKPT_ARGS:-} ${ROLLOUT_ARGS:-} ${OPTIMIZER_ARGS:-} ${LORA_ARGS:-} "$@")
  named_by_flags ${given[@]+"${given[@]}"}
  named_by_switches ${given[@]+"${given[@]}"}
  gpu_defaults
  gpu_split
  gpu_arguments
  gpu_more_arguments "$@"
  refuse_if "$(engines_problem)"
  check_roles
  if is_dry_run; then
    gpu_dry_run
  elif joins_cluster; then
    refuse_if "$(own_gpus_problem)" "$(driver_problem)" "$(cluster_problem)" "$(python_problem)"
    check_words "${WORDS[@]}"
    ensure_gpu_env
    ensure_for --train-backend "$TRAIN_BACKEND" # trainers and engines run on any machine, trackers where the driver is
    ensure_engine
    follow_head
  else
    gpu_start
  fi
}

NAMED+=(--train-backend:TRAIN_BACKEND --rollout-backend:ROLLOUT_BACKEND --backend:ROLLOUT_BACKEND
  --tensor-model-parallel-size:TRAIN_TP --tp:TRAIN_TP --pipeline-model-parallel-size:TRAIN_PP --pp:TRAIN_PP
  --context-parallel-size:TRAIN_CP --cp:TRAIN_CP
  --actor-num-nodes:ACTOR_NODES --actor-num-gpus-per-node:ACTOR_GPUS --rollout-num-gpus:ROLLOUT_GPUS --prm-num-gpus:PRM_GPUS
  --rollout-num-gpus-per-engine:TP --hf-checkpoint:HF_CKPT
  --prm-hf-checkpoint:PRM_MODEL_PATH --prm-model-path:PRM_MODEL_PATH --judge-backend:JUDGE_BACKEND --judge-url:JUDGE_URL)

# named_by_switches WORD...: the same for flags without a value.
named_by_switches() {
  local word
  for word in "$@"; do
    case $word in
      --colocate) COLOCATE=1 ;;
      --no-colocate) COLOCATE=0 ;;
      --allow-no-key) ALLOW_NO_KEY=1 ;;
    esac
  done
}

# gpu_defaults: sets every unset variable to its default.
gpu_defaults() {
  local name
  for name in MEGATRON COLOCATE USE_WANDB ALLOW_NO_KEY; do yes_or_no "$name"; done
  if [ "${MEGATRON:-0}" = 1 ]; then default TRAIN_BACKEND megatron; fi
  default TRAIN_BACKEND fsdp
  [ "${MEGATRON:-0}" = 0 ] || [ "$TRAIN_BACKEND" = megatron ] || die "MEGATRON=1 and TRAIN_BACKEND=$TRAIN_BACKEND contradict: unset one of them"
  default HOST "$(usual_host)"
  default PORT 30000
  check_port_number "$PORT"
  case ${PRM_M:-1} in *[!0-9]* | 0*) die "PRM_M=$PRM_M: give a whole number of votes per turn, 1 or more" ;; esac
  default NNODES 1
  whole NNODES 1
  check_cluster_values
  default ACTOR_NODES 1
  default COLOCATE 0
  default SERVED_MODEL_NAME "$(family_of "$MODEL")"
  if [ -n "${TRAIN_GPUS:-}" ]; then
    default PRM_GPUS 0
    [ -n "${ROLLOUT_GPUS:-}" ] || [ "$COLOCATE" = 1 ] || die "TRAIN_GPUS lists GPUs, so ROLLOUT_GPUS must list some too"
  fi
  default ACTOR_GPUS 4
  default ROLLOUT_GPUS 2
  default PRM_GPUS 2
  judge_without_gpus
  default PRM_TEACHER_GPUS 0
  default TP 2
  MODEL_PATH=${HF_CKPT:-${MODEL_PATH:-$ROOT/models/$MODEL}}
  RUN_DIR=${RUN_DIR:-$ROOT/runs/$RUN_NAME}
  absolute_places
  if [ -n "${WANDB_KEY:-}" ]; then export WANDB_API_KEY=$WANDB_KEY; fi
}

# judge_without_gpus: sets PRM_GPUS to 0 for the rules and for the API of JUDGE_URL.
judge_without_gpus() {
  local named=JUDGE_URL
  [ "${SERVES:-1}" = 1 ] || return 0
  case ${JUDGE_BACKEND:-${JUDGE_URL:+openai}} in rules | openai) ;; *) return 0 ;; esac
  case $DEFAULTED in *" PRM_GPUS "*) PRM_GPUS=0 ;; esac
  [ -z "${JUDGE_BACKEND:-}" ] || named=JUDGE_BACKEND=$JUDGE_BACKEND
  [ "$PRM_GPUS" = 0 ] || die "PRM_GPUS=$PRM_GPUS is for a judge model, and $named asks for another judge: unset one of them"
}

# family_of MODEL: prints the name for clients, which all releases of a model share, such as qwen3-4b.
family_of() {
  local name
  name=$(tr '[:upper:]' '[:lower:]' <<< "$1")
  name=${name%-2507}
  name=${name%-thinking}
  echo "${name%-instruct}"
}

# yes_or_no NAME: sets the variable to 1 or 0 if it is set.
yes_or_no() {
  local status=0
  [ -n "${!1:-}" ] || return 0
  is_yes "${!1}" || status=$?
  case $status in
    0) printf -v "$1" 1 ;;
    1) printf -v "$1" 0 ;;
    *) die "$1=${!1}: give 1 for yes, 0 for no" ;;
  esac
}

# gpu_split: sets the counts of GPUs, given as counts or as lists (TRAIN_GPUS="0,1" ROLLOUT_GPUS="2,3" PRM_GPUS="4,5").
gpu_split() {
  local name lists=()
  if [ -n "${TRAIN_GPUS:-}" ]; then
    [ "$NNODES" = 1 ] || die "TRAIN_GPUS lists the GPUs of one machine; with NNODES=$NNODES give ACTOR_GPUS, a count"
    lists=("$TRAIN_GPUS")
    ACTOR_GPUS=$(count_gpus "$TRAIN_GPUS")
    for name in ROLLOUT_GPUS PRM_GPUS; do
      if [ "${!name}" = 0 ] || { [ "$COLOCATE" = 1 ] && [ "$name" = ROLLOUT_GPUS ]; }; then continue; fi
      lists+=("${!name}")
      printf -v "$name" '%s' "$(count_gpus "${!name}")"
    done
    check_order "${lists[@]}"
    CUDA_VISIBLE_DEVICES=$(IFS=, && echo "${lists[*]}" | tr -s ' ,' ',')
    export CUDA_VISIBLE_DEVICES
  fi
  for name in ACTOR_GPUS ROLLOUT_GPUS PRM_GPUS; do
    whole "$name" 0 ' (lists of GPUs need TRAIN_GPUS)'
  done
  for name in PRM_TEACHER_GPUS NUM_GPUS GPUS_OF_NODE; do whole "$name" 0; done
  for name in TP ACTOR_NODES PRM_NUM_GPUS_PER_ENGINE NUM_JUDGE_WORKERS TRAIN_TP TRAIN_PP TRAIN_CP; do whole "$name" 1; done
  [ "$NNODES" = 1 ] || [ -n "${RAY_ADDRESS:-}" ] || [ "$(node_rank)" -lt "$NNODES" ] || die "NODE_RANK=$(node_rank): with NNODES=$NNODES the ranks are 0 to $((NNODES - 1))"
  case ${OPENCLAW_COMBINE_OPD_TEACHER_SOURCE:-trainer} in
    inference | infer | sglang | rollout) TEACHER_GPUS=$PRM_TEACHER_GPUS ;;
    trainer | megatron | mcore) TEACHER_GPUS=0 ACTOR_GPUS=$((ACTOR_GPUS + PRM_TEACHER_GPUS)) ;; # the trainer itself runs the teacher
    *) die "OPENCLAW_COMBINE_OPD_TEACHER_SOURCE=$OPENCLAW_COMBINE_OPD_TEACHER_SOURCE: give trainer or inference" ;;
  esac
  # shellcheck disable=SC2153  # a variable of the user
  NEEDED_GPUS=$((ACTOR_GPUS * ACTOR_NODES + (COLOCATE ? 0 : ROLLOUT_GPUS) + PRM_GPUS + TEACHER_GPUS))
  NUM_GPUS=${NUM_GPUS:-$NEEDED_GPUS}
  [ "$NEEDED_GPUS" -le "$NUM_GPUS" ] || die "trainer $ACTOR_GPUS x $ACTOR_NODES (ACTOR_GPUS, PRM_TEACHER_GPUS, ACTOR_NODES)" \
    "+ ROLLOUT_GPUS $ROLLOUT_GPUS + PRM_GPUS $PRM_GPUS + teacher engines $TEACHER_GPUS = $NEEDED_GPUS, but NUM_GPUS=$NUM_GPUS"
  # A plan assumes equal machines. A start does so if GPUS_OF_NODE is set, unless it joins a running Ray cluster.
  if is_dry_run || { [ -n "${GPUS_OF_NODE:-}" ] && [ -z "${RAY_ADDRESS:-}" ]; }; then
    MACHINES=(--num-gpus "$NUM_GPUS" --machines "$NNODES" --machine-gpus "${GPUS_OF_NODE:-0}")
  fi
}

count_gpus() { tr -s ', ' '\n' <<< "$1" | grep -c .; }

# check_order LIST...: exits unless the numbers increase, because trainer, policy and judge get GPUs in increasing order.
check_order() {
  local last=-1 id
  for id in $(IFS=, && echo "$*" | tr ',' ' '); do
    case $id in *[!0-9]*) die "GPU $id: write numbers, such as TRAIN_GPUS=0,1 ROLLOUT_GPUS=2,3" ;; esac
    [ "$id" -gt "$last" ] || die "GPU $id comes after GPU $last: the numbers in TRAIN_GPUS, ROLLOUT_GPUS and PRM_GPUS must increase, in this order"
    last=$id
  done
}

# flag FLAG VARIABLE DEFAULT: adds FLAG with the variable's value if it is set, else with the default unless that is empty.
flag() {
  if [ -n "${!2:-}" ]; then
    WORDS+=("$(mark_of "$2")" "$1" "${!2}")
  elif [ -n "$3" ]; then
    WORDS+=(::script "$1" "$3")
  fi
}

# gpu_arguments: arguments of all methods, then those of the method.
gpu_arguments() {
  WORDS+=(::script --reward-key score --hf-checkpoint "$MODEL_PATH" --run-dir "$RUN_DIR")
  flag --save SAVE_CKPT "${CKPT_SAVE_DIR:-$RUN_DIR/checkpoints}"
  flag --train-backend TRAIN_BACKEND fsdp
  flag --actor-num-nodes ACTOR_NODES 1
  flag --actor-num-gpus-per-node ACTOR_GPUS 4
  engine_arguments
  if [ "${SERVES:-1}" = 1 ]; then serving_arguments; else prompt_arguments; fi
  flag --max-tokens-per-gpu MAX_TOKENS_PER_GPU 32768
  if [ "$TRAIN_BACKEND" = megatron ]; then division_arguments; fi
  WORDS+=(::script --gradient-checkpointing --balance-data)
  flag --log-probs-chunk-size LOG_PROBS_CHUNK_SIZE 1024
  WORDS+=(--rollout-batch-size 16 --num-steps-per-rollout 1 --save-interval 20)
  WORDS+=(--eps-clip 0.2 --eps-clip-high 0.28 --entropy-coef 0.0)
  WORDS+=(--lr 1e-5 --lr-decay-style constant --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.98)
  WORDS+=(::script "${METHOD[@]}")
}

# division_arguments: parallel sizes of Megatron: tensor parallelism as far as the heads allow, experts over all ranks.
division_arguments() {
  local tensor experts python
  python=$(any_python)
  read -r tensor experts < <(PYTHONPATH=$ROOT/base:$ROOT/slime "$python" -m slime.plan.division "$MODEL_PATH" \
    --gpus $((ACTOR_GPUS * ACTOR_NODES)) --node "$ACTOR_GPUS" --pp "${TRAIN_PP:-1}" --cp "${TRAIN_CP:-1}") || :
  flag --tensor-model-parallel-size TRAIN_TP "$tensor"
  flag --pipeline-model-parallel-size TRAIN_PP ''
  flag --context-parallel-size TRAIN_CP ''
  if [ "${TRAIN_TP:-$tensor}" != 1 ]; then WORDS+=(::script --sequence-parallel); fi
  if [ "$experts" != 1 ]; then WORDS+=(::script --expert-model-parallel-size "$experts"); fi
  WORDS+=(::script --use-distributed-optimizer)
}

# serving_arguments: arguments of the gateway, its buffer, the judge, and the gate for new weights.
serving_arguments() {
  WORDS+=(::script --service-path openclaw.trainer_hooks.services.start --disable-rollout-global-dataset)
  buffer_flags
  if [ -n "${RL_BUFFER_URL:-}" ]; then WORDS+=("::variable RL_BUFFER_URL"); elif [ -n "${RL_BUFFER_DIR:-}" ]; then WORDS+=("::variable RL_BUFFER_DIR"); fi
  WORDS+=("${BUFFER[@]}")
  judge_arguments
  flag --host HOST "$(usual_host)"
  flag --port PORT 30000
  flag --served-model-name SERVED_MODEL_NAME "$MODEL"
  usual_context 32768
  flag --context-length CONTEXT_LENGTH ''
  flag --max-tokens-default MAX_RESPONSE_LEN 8192
  flag --temperature DEFAULT_TEMPERATURE 0.6
  flag --rollout-temperature DEFAULT_TEMPERATURE 0.6
  WORDS+=(::script --batch-timeout 600 --gate --on-weights-rejected-path openclaw.trainer_hooks.rejection.on_weights_rejected)
  WORDS+=(--gate-samples-path openclaw.trainer_hooks.gate_samples.gate_samples "${STEADY_RATE[@]}")
  # An agent's own prompt may have 10,000 tokens: the gate compares turns as long as those that are trained.
  flag --gate-longest CONTEXT_LENGTH ''
  flag --gate-engine GATE_ENGINE ''
  WORDS+=(::script "${EVERYDAY_GATE[@]}")
}

# usual_context TOKENS: sets CONTEXT_LENGTH, if it is unset, to TOKENS or to the model's smaller limit, because SGLang and vLLM
# reject more.
usual_context() {
  local most
  default CONTEXT_LENGTH "$1"
  case $DEFAULTED in *" CONTEXT_LENGTH "*) ;; *) return 0 ;; esac
  most=$(PYTHONPATH=$ROOT/base:$ROOT/slime "$(any_python)" -m slime.plan.shape "$MODEL_PATH")
  if [ "$most" != 0 ] && [ "$most" -lt "$CONTEXT_LENGTH" ]; then CONTEXT_LENGTH=$most; fi
}

# prompt_arguments: training tasks from a file, and evaluation on held-out tasks (EVAL_DATA) every EVAL_INTERVAL rollouts.
prompt_arguments() {
  if is_dry_run && { [ -z "${PROMPT_DATA:-}" ] || ! is_there "$PROMPT_DATA"; }; then
    WORDS+=(::script --prompt-data "$EXAMPLE_DATA")
  else
    flag --prompt-data PROMPT_DATA ''
  fi
  usual_context 16384
  flag --rollout-max-context-len CONTEXT_LENGTH ''
  flag --context-length CONTEXT_LENGTH ''
  flag --rollout-max-response-len MAX_RESPONSE_LEN 8192
  flag --rollout-temperature DEFAULT_TEMPERATURE 1.0
  if [ "$PRM_GPUS" != 0 ]; then # a judge of steps
    default PRM_MODEL_PATH "${JUDGE_MODEL_PATH:-$MODEL_PATH}"
    WORDS+=(::script --prm-enable)
    flag --prm-model-path PRM_MODEL_PATH ''
    flag --prm-num-gpus PRM_GPUS 2
    flag --prm-num-gpus-per-engine PRM_NUM_GPUS_PER_ENGINE "$TP"
    flag --prm-context-length PRM_CONTEXT_LENGTH ''
    flag --prm-m PRM_M 1
    flag --prm-timeout PRM_TIMEOUT 300
  fi
  if [ -n "${EVAL_DATA:-}" ] && { is_there "$EVAL_DATA" || ! is_dry_run; }; then
    WORDS+=("$(mark_of EVAL_DATA)" --eval-prompt-data heldout "$EVAL_DATA")
    flag --eval-interval EVAL_INTERVAL 20
  fi
}

# engine_arguments: the policy's engines, on separate GPUs or, with COLOCATE=1, on those of the trainer.
engine_arguments() {
  flag --backend ROLLOUT_BACKEND sglang
  flag --rollout-num-gpus ROLLOUT_GPUS 2
  flag --rollout-num-gpus-per-engine TP 2
  if [ "$COLOCATE" = 1 ]; then
    WORDS+=(::script --colocate --no-offload-rollout --no-offload-train) # both stay, so serving never waits
  fi
  case ${ROLLOUT_BACKEND:-sglang} in
    embedded) return ;; # it has none of the flags below
    vllm)
      flag --vllm-gpu-memory-utilization MEM_FRACTION_STATIC 0.8
      return
      ;;
  esac
  flag --sglang-mem-fraction-static MEM_FRACTION_STATIC 0.8
  flag --chunked-prefill-size CHUNKED_PREFILL_SIZE ''
  flag --sglang-cuda-graph-max-bs-decode CUDA_GRAPH_MAX_BS ''
  flag --sglang-reasoning-parser REASONING_PARSER ''
  flag --sglang-tool-call-parser TOOL_CALL_PARSER ''
}

# judge_arguments: a judge model on PRM_GPUS; if PRM_GPUS is 0, the rules, or the API at JUDGE_URL.
judge_arguments() {
  if [ "$PRM_GPUS" != 0 ]; then
    default PRM_MODEL_PATH "${JUDGE_MODEL_PATH:-$MODEL_PATH}"
    flag --judge-backend JUDGE_BACKEND engine
    flag --prm-model-path PRM_MODEL_PATH ''
    flag --prm-num-gpus PRM_GPUS 2
    flag --prm-num-gpus-per-engine PRM_NUM_GPUS_PER_ENGINE "$TP"
    flag --prm-context-length PRM_CONTEXT_LENGTH ''
    thinking_judge
  elif [ -n "${JUDGE_URL:-}" ]; then
    flag --judge-backend JUDGE_BACKEND openai
  else
    flag --judge-backend JUDGE_BACKEND rules
    # Messages without a phrase of the rules are read by a sentence model if it is installed, else by the policy:
    # openclaw/judge/sentences/README.md
    if [ "${JUDGE_BACKEND:-rules}" = rules ]; then
      flag --judge-embeddings JUDGE_EMBEDDINGS auto
      flag --judge-reader-url JUDGE_READER_URL served
    fi
  fi
  if [ "$TEACHER_GPUS" != 0 ]; then flag --prm-teacher-num-gpus TEACHER_GPUS ''; fi
  flag --num-judge-workers NUM_JUDGE_WORKERS 2
}

# thinking_judge: limits for a model that thinks before it votes: longer replies, and 32 requests per GPU, with which the longest
# reply takes minutes. One worker per engine, because it also writes prompts and parses replies.
thinking_judge() {
  local engines=$((PRM_GPUS / ${PRM_NUM_GPUS_PER_ENGINE:-$TP}))
  default NUM_JUDGE_WORKERS $((engines > 2 ? engines : 2))
  flag --judge-max-requests JUDGE_MAX_REQUESTS $(((32 * PRM_GPUS + NUM_JUDGE_WORKERS - 1) / NUM_JUDGE_WORKERS))
  flag --prm-m PRM_M 1
  flag --prm-max-new-tokens PRM_MAX_NEW_TOKENS 8192
  flag --judge-request-timeout JUDGE_REQUEST_TIMEOUT 300
  flag --judge-timeout JUDGE_TIMEOUT 900
}

# engines_problem: prints a message if no engine would serve the policy: it needs GPUs, or external engines.
engines_problem() {
  case ${ROLLOUT_BACKEND:-sglang} in sglang | vllm) ;; *) return 0 ;; esac
  if [ "$ROLLOUT_GPUS" != 0 ] || [ "$NEEDED_GPUS" = 0 ]; then return 0; fi
  case " ${WORDS[*]}" in *" --rollout-external-engine-addrs"* | *" --debug-train-only"*) return 0 ;; esac
  echo "ROLLOUT_GPUS=0: no engine would serve the policy; give it GPUs, or --rollout-external-engine-addrs HOST:PORT of running engines"
}

# gpu_more_arguments "$@": arguments from exported variables, then the command line; the last value wins.
gpu_more_arguments() {
  local arguments=()
  if [ "${USE_WANDB:-0}" = 1 ]; then
    WORDS+=("::variable USE_WANDB" --use-wandb --wandb-project "${WANDB_PROJECT:-openclaw_rl}")
  fi
  marked_more "$@"
  WORDS+=("${arguments[@]}")
}

# gpu_dry_run: prints the plan and every argument with its source; nothing is started. A fresh clone first gets its environment.
# Missing requirements are errors on a machine with a GPU. Without a GPU they are only shown, because the run starts elsewhere.
gpu_dry_run() {
  local status=0 note title="missing  for a start here; listed only, since this machine has no GPU: the plan is for another one"
  plan_python_for "${WORDS[@]}"
  show_plan --gpu "${GPU_TYPE:-}" --usual-gpu "${USUAL_GPU:-H100}" -- "${WORDS[@]}" || status=$?
  [ "$status" != 2 ] || return 2
  printf '\nstart\n  %s\n' "$(start_sentence)"
  note=$(key_problem)
  note=${note:-$(for_whom)}
  [ -z "$note" ] || printf '  %s\n' "$note"
  if has_gpu || [ "$NEEDED_GPUS" = 0 ]; then title=$REFUSED_HERE; fi
  if ! show_missing "$title" "$(model_problem "$MODEL_PATH" "$MODEL")" "$(data_problem)" "$(data_path_problem)" \
    "${MISSING:-}" "$(cluster_problem)" "$(gpus_problem)" "$(driver_problem)" "$(files_problem)" "$(python_problem)" "$(folders_problem)" "$(gateway_problem)"; then
    if [ "$title" = "$REFUSED_HERE" ]; then status=1; fi
  fi
  return "$status"
}

start_sentence() {
  if [ -n "${RAY_ADDRESS:-}" ]; then
    echo "in the Ray cluster that RAY_ADDRESS names, once it has $NEEDED_GPUS GPUs"
  elif [ "$NNODES" != 1 ]; then
    echo "$NNODES machines: the first one (NODE_RANK=0) starts Ray's head, waits for the others, and runs the driver"
  else
    echo "one machine: the driver starts Ray"
  fi
}

# with_key: whether other machines may connect: a key is set, or ALLOW_NO_KEY permits access without one.
with_key() { [ -n "${SGLANG_API_KEY:-}${OPENCLAW_API_KEY:-}${OPENCLAW_API_KEYS:-}" ] || [ "${ALLOW_NO_KEY:-0}" = 1 ]; }

# usual_host: the default of HOST: only this machine if no key is set, so that a first start works.
usual_host() { if with_key; then echo 0.0.0.0; else echo 127.0.0.1; fi; }

# for_whom: prints which machines can connect, if no key is set.
for_whom() {
  [ "${SERVES:-1}" = 1 ] || return 0
  with_key || echo "for this machine only, on $HOST; to serve other machines, set SGLANG_API_KEY to a secret"
}

# key_problem: prints the reason if other machines may not connect; never prints a key.
key_problem() {
  [ "${SERVES:-1}" = 1 ] || return 0
  case $HOST in 127.0.0.1 | localhost | ::1) return ;; esac
  with_key || echo "HOST=$HOST is open to others: set SGLANG_API_KEY to a secret, or HOST=127.0.0.1, or ALLOW_NO_KEY=1"
}

# data_problem: prints a message if a track has no tasks, or their file does not exist.
data_problem() {
  local name
  [ "${SERVES:-1}" = 0 ] || return 0
  if [ -z "${PROMPT_DATA:-}" ]; then
    echo "PROMPT_DATA is not set: give the file of the tasks, JSON Lines or Parquet"
    return
  fi
  for name in PROMPT_DATA EVAL_DATA; do
    is_there "${!name:-}" || { echo "$name=${!name} does not exist: give the file of the tasks, JSON Lines or Parquet" && return; }
  done
}

# is_there FILE: whether a file of prompts exists, also with a slice (FILE@[:100]); true if FILE is empty.
is_there() { [ -z "$1" ] || [ -e "${1%@\[*}" ]; }

# python_problem: prints a message if the engine's Python cannot be run.
python_problem() {
  local name=SGLANG_PYTHON
  case ${ROLLOUT_BACKEND:-sglang} in sglang) ;; vllm) name=VLLM_PYTHON ;; *) return 0 ;; esac
  [ $((ROLLOUT_GPUS + PRM_GPUS + TEACHER_GPUS)) != 0 ] && [[ " ${WORDS[*]:-}" != *" --engine-python"* ]] || return 0
  [ -z "${!name:-}" ] || command -v "${!name}" >/dev/null || echo "$name=${!name} cannot be run: give the Python that has the engine, or unset it"
}

# files_problem: prints the missing files of an incomplete model, before gigabytes are installed and engines are started.
files_problem() {
  local problem python
  [ -f "$MODEL_PATH/config.json" ] || return 0 # model_problem
  python=$(any_python)
  problem=$(PYTHONPATH=$ROOT/base:$ROOT/slime "$python" -m slime.plan.model_folder "$MODEL_PATH") || echo "MODEL_PATH=$MODEL_PATH" \
    "${problem:-cannot be read}, so its download is not complete; run the same hf download again, which resumes it"
}

has_gpu() { command -v nvidia-smi >/dev/null && [ -n "$(nvidia-smi -L 2>/dev/null | grep '^GPU' || :)" ]; }

# gateway_problem: prints the reason if no run can start in RUN_DIR, or if its gateway cannot listen here.
gateway_problem() { if [ "${SERVES:-1}" = 1 ]; then run_problem "$HOST" "$PORT"; else run_problem; fi; }

ensure_gpu_env() {
  ensure_env "$ROOT/requirements.txt" "$ROOT/instructions/requirements-gpu.txt"
  check_torch
}

# check_torch: exits if the environment has a CPU build of torch from a run without a GPU, which pip would keep.
check_torch() {
  local version
  [ "$NEEDED_GPUS" != 0 ] || return 0
  version=$("$PY" -c 'import importlib.metadata; print(importlib.metadata.version("torch"))')
  case $version in
    *+cpu*) die "torch $version in $VENV is a build for CPUs: unset TORCH_INDEX_URL and give VENV another folder, or" \
      "$PY -m pip install --force-reinstall $(grep '^torch==' "$ROOT/requirements.txt")" ;;
  esac
}

# install_beside FOLDER ENGINE: installs an engine in an environment separate from the trainer's.
install_beside() {
  local VENV=$1 PY=$1/bin/python
  make_venv
  install_locked "$2" "$ROOT/instructions/requirements-$2.txt"
}

# ensure_engine: installs SGLang or vLLM once, in an environment separate from the trainer's. Does nothing if a variable or flag
# gives its Python, if the trainer's environment has it, or if no engine is started here.
ensure_engine() {
  local engine=${ROLLOUT_BACKEND:-sglang} variable folder file
  case $engine in sglang) variable=SGLANG_PYTHON ;; vllm) variable=VLLM_PYTHON ;; *) return 0 ;; esac
  if [ -n "${!variable:-}" ] || [[ " ${WORDS[*]}" == *" --engine-python"* ]]; then return 0; fi
  [ $((ROLLOUT_GPUS + PRM_GPUS + TEACHER_GPUS)) != 0 ] || return 0
  ! has_module "$engine" || return 0
  folder=$VENV-$engine file=$ROOT/instructions/requirements-$engine.txt
  if ! has_engine "$folder" "$file"; then
    mkdir -p "$folder"
    # shellcheck disable=SC2094 # 9 is a lock
    install_engine "$engine" "$folder" "$file" 9<"$folder"
  fi
  printf -v "$variable" '%s' "$folder/bin/python"
  export "${variable?}"
}

has_engine() { [ "$(cat "$1/.installed" 2>/dev/null)" = "$(cksum <"$2")" ]; }

# install_engine NAME FOLDER REQUIREMENTS: installs while holding the lock of the folder (descriptor 9), which machines may share.
install_engine() {
  lock_folder wait || :
  ! has_engine "$2" "$3" || return 0
  echo "installing $1 in $2 (once; several gigabytes, so a few minutes)" >&2
  install_beside "$2" "$1"
  cksum <"$3" >"$2/.installed"
}

# gpu_start: runs all checks, then the driver.
gpu_start() {
  local words driver=train_async.py
  refuse_if "$(folders_problem)" "$(gateway_problem)"
  refuse_if "$(key_problem)" "$(model_problem "$MODEL_PATH" "$MODEL")" "$(data_problem)" "$(data_path_problem)" "$(cluster_problem)"
  refuse_if "$(gpus_problem)" "$(driver_problem)" "$(python_problem)"
  refuse_if "$(files_problem)"
  check_words "${WORDS[@]}"
  ensure_gpu_env
  without_marks "${WORDS[@]}"
  ensure_for "${words[@]}"
  ensure_engine
  for_whom >&2
  own_run_dir "$RUN_DIR" # conversations and weights: readable by this user only
  if [ "$COLOCATE" = 1 ]; then driver=train.py; fi # the other loop overlaps training with collecting, on GPUs of its own
  if [ "${SERVES:-1}" = 1 ] && [ -n "${DATA_PATH:-}" ]; then
    "$PY" -m openclaw.store import "$DATA_PATH" --model-path "$MODEL_PATH" "${BUFFER[@]}"
  fi
  # Megatron's overlap needs one queue; FSDP's gathers and computation need several in parallel
  if [ "$TRAIN_BACKEND" = megatron ]; then export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}; fi
  if [ -n "${RAY_ADDRESS:-}" ]; then
    meet_cluster 1
    run_driver "$RUN_DIR" "$ROOT/slime/$driver" "${words[@]}"
  elif [ "$NNODES" = 1 ]; then
    run_driver "$RUN_DIR" "$ROOT/slime/$driver" "${words[@]}"
  else
    lead_cluster
    run_driver_in_cluster "$RUN_DIR" "$ROOT/slime/$driver" "${words[@]}"
  fi
}

# own_gpus_problem: prints a message if this machine has no GPU, or fewer than GPUS_OF_NODE. With GPUS_OF_NODE=0 a machine of
# several needs none.
own_gpus_problem() {
  local here way=''
  if [ "$NEEDED_GPUS" = 0 ]; then return 0; fi
  if [ "$NNODES" != 1 ] && [ "${GPUS_OF_NODE:-}" = 0 ]; then return 0; fi
  if joins_cluster; then way="; GPUS_OF_NODE=0 lets a machine without GPUs join"; fi
  if ! command -v nvidia-smi >/dev/null; then
    echo "no GPU: nvidia-smi was not found; run bash instructions/check_gpu.sh${way:-, or use a run_tiny_*.sh script}"
    return
  fi
  here=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || :)
  if [ "$here" = 0 ]; then
    echo "no GPU: nvidia-smi lists none; run bash instructions/check_gpu.sh$way"
  elif [ "${GPUS_OF_NODE:-0}" -gt "$here" ]; then
    echo "GPUS_OF_NODE=$GPUS_OF_NODE, but this machine has $here GPUs"
  fi
}

# gpus_problem: prints a message if this machine has fewer GPUs than its share. A running Ray cluster manages its own GPUs.
gpus_problem() {
  local here all id visible problem which='' from=CUDA_VISIBLE_DEVICES
  if [ -n "${RAY_ADDRESS:-}" ] || [ "$NEEDED_GPUS" = 0 ]; then return 0; fi
  problem=$(own_gpus_problem)
  if [ -n "$problem" ]; then echo "$problem" && return; fi
  here=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || :) all=$here
  if [ -n "${TRAIN_GPUS:-}" ]; then from="TRAIN_GPUS, ROLLOUT_GPUS, PRM_GPUS"; fi
  if [ -z "${TRAIN_GPUS:-}" ] && [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    visible=$(count_gpus "$CUDA_VISIBLE_DEVICES")
    if [ "$visible" -lt "$here" ]; then which=" (CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES, of $here)" here=$visible; fi
  fi
  for id in ${CUDA_VISIBLE_DEVICES:+${CUDA_VISIBLE_DEVICES//,/ }}; do
    case $id in *[!0-9]*) continue ;; esac # a UUID
    if [ "$id" -ge "$all" ]; then
      echo "GPU $id does not exist ($from): this machine has 0 to $((all - 1))"
      return
    fi
  done
  [ $((here * NNODES)) -ge "$NEEDED_GPUS" ] ||
    echo "$NEEDED_GPUS GPUs are requested, but there are $((here * NNODES))$which: reduce ACTOR_GPUS, ROLLOUT_GPUS or PRM_GPUS"
}

# driver_problem: prints a message if the GPU driver is too old for the CUDA of torch or the engine, before a download.
driver_problem() {
  local driver='' engine=${ROLLOUT_BACKEND:-sglang} pythons=("${VENV:-$ROOT/.venv}/bin/python")
  if [ "$NEEDED_GPUS" = 0 ] || ! command -v nvidia-smi >/dev/null; then return 0; fi
  read -r driver < <(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) || :
  case $engine in
    sglang) pythons+=("${SGLANG_PYTHON:-${pythons[0]%/bin/python}-sglang/bin/python}") ;;
    vllm) pythons+=("${VLLM_PYTHON:-${pythons[0]%/bin/python}-vllm/bin/python}") ;;
  esac
  if [[ " ${WORDS[*]:-}" == *" --engine-python"* ]]; then pythons=("${pythons[0]}"); fi
  PYTHONPATH=$ROOT/base:$ROOT/slime "$(any_python)" -m slime.plan.driver "${driver##*, }" "${pythons[@]}" || :
}

lora_defaults() {
  default TP 1
  default MAX_TOKENS_PER_GPU 8192
  if [ -z "${TRAIN_GPUS:-}" ]; then
    default ACTOR_GPUS 2
    default ROLLOUT_GPUS 1
    default PRM_GPUS 1
  fi
}

# one_gpu_defaults: everything on one GPU of 24 GB; the trainer uses the memory that MEM_FRACTION_STATIC leaves.
one_gpu_defaults() {
  default COLOCATE 1
  default ACTOR_GPUS 1
  default ROLLOUT_GPUS 1
  default PRM_GPUS 0
  default TP 1
  default CONTEXT_LENGTH 16384
  default MAX_TOKENS_PER_GPU 4096
  default MAX_RESPONSE_LEN 4096
  default LOG_PROBS_CHUNK_SIZE 256
  default MEM_FRACTION_STATIC 0.45
  default CHUNKED_PREFILL_SIZE 2048 # the plan counts these two in addition to the engine's share
  default CUDA_GRAPH_MAX_BS 16
  USUAL_GPU=24GB
}

# one_large_gpu_defaults: the same on one GPU of 80 GB: adapters on bf16 weights, with the default context.
one_large_gpu_defaults() {
  default CONTEXT_LENGTH 32768
  default MAX_TOKENS_PER_GPU 32768
  default MAX_RESPONSE_LEN 8192
  default LOG_PROBS_CHUNK_SIZE 512
  default MEM_FRACTION_STATIC 0.4
  default CHUNKED_PREFILL_SIZE 8192
  default CUDA_GRAPH_MAX_BS 64
  one_gpu_defaults
  USUAL_GPU=H100
}
