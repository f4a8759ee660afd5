#!/usr/bin/env bash
# Starts one process of an elastic training on each host: elastic.sh "HOST ..." SCRIPT [ARGUMENT ...]
# The processes of later calls join the training of the first. WEFT_LOBBY and WEFT_SECRET_FILE are the same in every call;
# no WEFT_SECRET, as all users see command lines. The hosts have the same directory and the same virtual environment.
set -euo pipefail
read -ra hosts <<<"$1"
shift
variables=$(for name in "${!WEFT_@}"; do printf '%s=%q ' "$name" "${!name}"; done)

for host in "${hosts[@]}"; do
	# Without a terminal, a process goes on if its connection or this script ends.
	ssh "$host" "cd '$PWD' && $variables exec '$(command -v python)' ${*@Q}" </dev/null &
done
failed=0
for _ in "${hosts[@]}"; do
	wait -n || failed=$?
done
exit "$failed"
