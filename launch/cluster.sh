# shellcheck shell=bash
# Sourced by gpu.sh: a Ray cluster over several machines, started by the same script on each of them, or a running one.
#   NNODES                      number of machines
#   NODE_RANK                   number of this machine, 0 for the first; also SLURM_NODEID, MLP_ROLE_INDEX
#   MASTER_ADDR                 address of the first machine; also MLP_WORKER_0_HOST
#   RAY_PORT (6379)             port of its Ray, JOIN_TIMEOUT (600) seconds in which machines must join
#   RAY_ADDRESS                 a running Ray cluster; ray job submit sets it. The script then starts no Ray, and runs once
# The first machine starts Ray's head, waits for the others and runs the driver; the others provide their GPUs until it ends.
# A Ray that fails is restarted on its machine; training continues from the last checkpoint when all machines have joined.
# Ray requires a token for every connection: set RAY_AUTH_TOKEN to the same secret on all machines.
# All started processes are children of the script and end with it; other Ray clusters are not affected.

node_rank() { echo "${NODE_RANK:-${SLURM_NODEID:-${MLP_ROLE_INDEX:-0}}}"; }

master_addr() { echo "${MASTER_ADDR:-${MLP_WORKER_0_HOST:-}}"; }

# check_cluster_values: exits if a rank, port, time or address is invalid.
check_cluster_values() {
  local name
  for name in NODE_RANK SLURM_NODEID MLP_ROLE_INDEX; do whole "$name" 0; done
  whole JOIN_TIMEOUT 1 ' of seconds'
  RAY_PORT=${RAY_PORT:-6379}
  check_port_number "$RAY_PORT" RAY_PORT
  [ "$NNODES" = 1 ] || [ "${SERVES:-1}" = 0 ] || [ "$RAY_PORT" != "$PORT" ] || die "RAY_PORT and PORT are both $PORT: Ray and the gateway need different ports"
  case ${RAY_ADDRESS:-} in *[!a-zA-Z0-9_.:/%-]*) die "RAY_ADDRESS=$RAY_ADDRESS is not an address: give HOST:PORT of a running Ray cluster" ;; esac
  case $(master_addr) in
    *[!a-zA-Z0-9_.:%-]*) die "MASTER_ADDR=$(master_addr) is not an address: give the IP address or the name of the first machine" ;;
    *:*:*) ;; # IPv6
    *:*) die "MASTER_ADDR=$(master_addr) has a port: give the address alone, and the port with RAY_PORT" ;;
  esac
}

joins_cluster() { [ "$NNODES" != 1 ] && [ -z "${RAY_ADDRESS:-}" ] && [ "$(node_rank)" != 0 ]; }

# check_roles: exits for ranks and lists of GPUs that a running Ray cluster does not support.
check_roles() {
  [ -n "${RAY_ADDRESS:-}" ] || return 0
  [ "${NODE_RANK:-0}" = 0 ] || die "NODE_RANK=$NODE_RANK: RAY_ADDRESS names a running Ray cluster, so start the script once," \
    "on a machine of that cluster; or unset RAY_ADDRESS, and the scripts start Ray themselves"
  [ -z "${TRAIN_GPUS:-}" ] || die "TRAIN_GPUS lists GPUs, but in a running Ray cluster (RAY_ADDRESS) Ray chooses them:" \
    "give counts, ACTOR_GPUS, ROLLOUT_GPUS and PRM_GPUS"
}

# gpus_here: prints the number of GPUs that this machine provides to Ray.
gpus_here() {
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c .
  elif command -v nvidia-smi >/dev/null; then
    nvidia-smi -L | grep -c '^GPU'
  else
    echo 0
  fi
}

# own_children: makes processes that are started later end with this script.
own_children() {
  RAY_PID='' DRIVER_PID='' ENDED=''
  trap 'stop_children' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
}

# start_ray ARG...: runs `ray start` in the foreground, as a child.
start_ray() {
  env -u RAY_ADDRESS "$VENV/bin/ray" start "$@" --num-gpus "${GPUS_OF_NODE:-$(gpus_here)}" --disable-usage-stats --block &
  RAY_PID=$!
}

stop_children() {
  local pid
  if [ -n "$ENDED" ]; then echo "$(date +%s) $$" > "$ENDED"; fi
  for pid in $DRIVER_PID $RAY_PID; do
    kill -TERM "$pid" 2>/dev/null || :
    wait "$pid" 2>/dev/null || :
  done
}

# alive PID: whether this child is running.
alive() { kill -0 "$1" 2>/dev/null; }

# run_driver_in_cluster RUN_DIR DRIVER ARG...: as run_driver; Ray's head ends after the driver.
run_driver_in_cluster() {
  local run_dir=$1 status=0
  shift
  "$PY" -m slime.processes.supervisor --run-dir "$run_dir" --parent $$ -- "$PY" "$@" &
  DRIVER_PID=$!
  while alive "$DRIVER_PID"; do
    if ! alive "$RAY_PID"; then
      echo "Ray's head has ended and is restarted; serving continues" >&2
      start_head
    fi
    sleep 2 & wait $!
  done
  wait "$DRIVER_PID" || status=$?
  return "$status"
}

# cluster_problem: prints the missing setting of a start on several machines: the address of the first machine, at which its Ray
# can listen, or the common token.
cluster_problem() {
  if [ "$NNODES" = 1 ] || [ -n "${RAY_ADDRESS:-}" ]; then return 0; fi
  if [ -z "$(master_addr)" ]; then
    echo "NNODES=$NNODES: set MASTER_ADDR to the address of the first machine that the others can reach"
  elif [ "${RAY_AUTH_MODE:-token}" = token ] && [ -z "${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}" ] && [ ! -f "$HOME/.ray/auth_token" ]; then
    echo "set RAY_AUTH_TOKEN to the same secret on all machines (or RAY_AUTH_MODE=disabled in a private network)"
  elif [ "${RAY_AUTH_MODE:-token}" = token ] && [ -z "${RAY_AUTH_TOKEN:-}" ] && [ ! -r "${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}" ]; then
    echo "${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token} cannot be read: set RAY_AUTH_TOKEN_PATH to the file of the secret that all machines share"
  else
    run_module slime.plan.master "$(master_addr)" "$RAY_PORT" "$(node_rank)"
  fi
}

# check_cluster: exits with the problem of cluster_problem, if any.
check_cluster() {
  refuse_if "$(cluster_problem)"
  export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
}

# last_end: prints the record of the first machine's last end in the shared run folder.
# shellcheck disable=SC2153  # RUN_DIR is set by gpu.sh
last_end() { cat "$RUN_DIR/cluster.ended" 2>/dev/null || :; }

# follow_head: runs on all machines but the first. Ends when the first machine has ended (see last_end) or is unreachable.
follow_head() {
  local address before since short=0
  before=$(last_end)
  address=$(master_addr)
  check_cluster
  own_children
  wait_for_port "$address" "$RAY_PORT"
  while [ "$(last_end)" = "$before" ]; do
    since=$SECONDS
    start_ray --address "$address:$RAY_PORT"
    while alive "$RAY_PID" && [ "$(last_end)" = "$before" ]; do sleep 2 & wait $!; done
    if [ $((SECONDS - since)) -lt 60 ]; then short=$((short + 1)); else short=0; fi
    [ "$short" -lt 5 ] || die "Ray ended $short times within a minute of its start on this machine; the reason is above"
    if [ "$(last_end)" = "$before" ]; then wait_for_port "$address" "$RAY_PORT"; fi
  done
}

# lead_cluster: runs on the first machine; sets RAY_ADDRESS, and returns when all machines have joined.
lead_cluster() {
  local address
  address=$(master_addr)
  check_cluster
  own_children
  ENDED=$RUN_DIR/cluster.ended
  export RAY_ADDRESS=$address:$RAY_PORT
  start_head
  wait_for_port "$address" "$RAY_PORT" "$RAY_PID"
  meet_cluster "$NNODES" --shared "$RUN_DIR" "${SAVE_CKPT:-${CKPT_SAVE_DIR:-$RUN_DIR}}"
}

start_head() { start_ray --head --node-ip-address "$(master_addr)" --port "$RAY_PORT" --dashboard-host 127.0.0.1; }

# meet_cluster MACHINES [--shared FOLDER...]: returns when the Ray at RAY_ADDRESS has these machines, GPUs and folders.
meet_cluster() {
  # shellcheck disable=SC2153  # set by gpu.sh
  "$PY" -m slime.ray.cluster --address "$RAY_ADDRESS" --gpus "$NEEDED_GPUS" --timeout "${JOIN_TIMEOUT:-600}" \
    --nodes "$@" || not_met $?
}

# not_met STATUS: exits; 2: the missing parts were reported; any other status: Ray ended the process because it did not answer.
not_met() {
  [ "$1" = 2 ] || die "Ray at $RAY_ADDRESS accepts connections but does not answer: run ray status --address $RAY_ADDRESS" \
    "on its head for the reason; start Ray again, or unset RAY_ADDRESS and let the script start it"
  exit 2
}

# wait_for_port HOST PORT [PID]: returns when a process listens there; exits if process PID ends before.
wait_for_port() {
  local until=$((SECONDS + ${JOIN_TIMEOUT:-600}))
  until (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null; do
    [ -z "${3:-}" ] || alive "$3" || die "Ray ended while it started; the reason is above (is RAY_PORT $2 taken?)"
    [ "$SECONDS" -lt "$until" ] || die "nothing listens at $1:$2 after ${JOIN_TIMEOUT:-600} s: is the script running there?"
    sleep 2
  done
}
