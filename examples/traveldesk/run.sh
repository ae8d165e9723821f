#!/usr/bin/env bash
# Runs the travel desk from its question to its answer, everything on this machine and in a temporary folder: a scripted
# model (or a real one, when OPENAI_API_KEY or OPENAI_BASE_URL is set), agentd dev, the services, and one run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=${AGENTD_BIN:-$here/../../bin}
for program in agentd traveldesk; do
  if ! [ -x "$bin/$program" ]; then
    echo "run.sh: $bin/$program is missing; build it with: make build" >&2
    exit 1
  fi
done

# Settings of the caller's own servers do not matter here.
for variable in ${!NATS_@} ${!REDIS_@} ${!AGENTD_@}; do unset "$variable"; done

data=$(mktemp -d)
children=()
finish() {
  status=$?
  trap - EXIT
  if [ ${#children[@]} -gt 0 ]; then
    kill "${children[@]}" 2>/dev/null || true
    wait "${children[@]}" 2>/dev/null || true
  fi
  rm -rf "$data"
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# await LOG PATTERN: waits until the child started last has written the pattern.
await() {
  for _ in $(seq 600); do
    if grep -qs "$2" "$1"; then return; fi
    kill -0 "$!" 2>/dev/null || break
    sleep 0.02
  done
  cat "$1" >&2
  exit 1
}

if [ -z "${OPENAI_API_KEY:-}${OPENAI_BASE_URL:-}" ]; then
  "$bin/agentd" mock-llm --script "$here/script.yaml" --listen 127.0.0.1:0 >"$data/model.log" 2>&1 &
  children+=($!)
  await "$data/model.log" 'listens on'
  OPENAI_BASE_URL=$(sed -n 's/.*listens on \(.*\)/\1/p' "$data/model.log")/v1
  export OPENAI_BASE_URL
  echo "model     scripted (set OPENAI_API_KEY or OPENAI_BASE_URL for a real one)"
else
  echo "model     ${OPENAI_BASE_URL:-OpenAI}"
fi

"$bin/agentd" dev --config "$here/agentd.yaml" --data "$data/nats" >"$data/dev.log" 2>&1 &
children+=($!)
await "$data/dev.log" '^ready'
NATS_URL=$(cat "$data/nats/address")
export NATS_URL
echo "nats      $NATS_URL"

"$bin/traveldesk" &
children+=($!)

"$bin/agentd" run travel.desk --config "$here/agentd.yaml" \
  --message 'Two nights in Lisbon from 4 December 2026, please. I live in Berlin.' \
  --answer 'Yes, book both'
