#!/usr/bin/env bash
# Trains on several hosts with nothing but ssh: ssh.sh "HOST0 HOST1 ..." RANKS_PER_HOST SCRIPT [ARGUMENT ...]
# The hosts have the same directory and the same virtual environment; rank 0 is on the first.
set -euo pipefail
read -ra hosts <<<"$1"
ranks_per_host=$2
shift 2
port=${MASTER_PORT:-29500}
torchrun=$(command -v torchrun)

trap 'kill $(jobs -p) 2>/dev/null || true' EXIT # any end of this script ends the connections
for node in "${!hosts[@]}"; do
	# With a terminal (-tt), what runs on a host ends with its connection.
	ssh -tt "${hosts[$node]}" "cd '$PWD' && exec '$torchrun' --nnodes ${#hosts[@]} --node-rank $node" \
		"--nproc-per-node $ranks_per_host --master-addr ${hosts[0]} --master-port $port ${*@Q}" </dev/null &
done
for _ in "${hosts[@]}"; do
	wait -n # the first failure ends the job
done
