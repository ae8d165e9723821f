#!/usr/bin/env bash
# Serves weather.forecast with the nats CLI and jq, one call after the other. NATS_URL, NATS_USER and NATS_PASSWORD say
# where. MODE=binary answers in binary mode, with the attributes as headers.
set -euo pipefail

nats() { command nats --inbox-prefix=_INBOX_agentd_weather "$@"; }

answer() { # the call → the event that answers it
  jq -c '{
    specversion: "1.0", id: "\(.id)-answer", source: "weather.forecast", subject, parentid: .id, accesscontrol,
    to: .redirectto
  } + if .data.city == "Atlantis" then {
    type: "sys.weather.forecast.error", dataschema: "#/weather/forecast/0.0.0",
    data: {errorName: "tool_failed", errorMessage: "the weather is unknown in Atlantis", errorStack: null}
  } else {
    type: "weather.forecast.done", dataschema, data: {text: "sunny in \(.data.city)"}
  } end'
}

publish() { # subject, event: succeeds when an answer is stored, this one or one before it
  local headers=(-H "Nats-Expected-Last-Subject-Sequence:0") body=$2 attribute said
  if [[ ${MODE:-structured} == binary ]]; then
    body=$(jq -c .data <<<"$2")
    while read -r attribute; do headers+=(-H "ce-$attribute"); done < <(
      jq -r 'del(.data) | to_entries[] | select(.value != null) | "\(.key):\(.value | @uri)"' <<<"$2"
    )
  else
    headers+=(-H "Content-Type:application/cloudevents+json")
  fi
  said=$(nats pub --jetstream --no-templates "${headers[@]}" "$1" "$body" 2>&1) ||
    [[ $said == *"wrong last sequence"* ]] || { echo "$said" >&2; return 1; }
}

next() { # seconds: asks for one call
  nats pub --quiet --reply "$inbox" "\$JS.API.CONSUMER.MSG.NEXT.AGENTD_OUT.svc_local_weather_forecast" \
    "{\"batch\": 1, \"expires\": ${1}000000000}"
}

inbox=_INBOX_agentd_weather.$$.$RANDOM
coproc calls { exec nats sub "$inbox" --dump=-; } # JSON with Subject, Reply and Data, ended by a zero byte
trap 'kill $calls_PID' EXIT
until next 1 && read -r -d '' -t 2 -u "${calls[0]}" message; do :; done # until nats sub is there
while true; do
  subject=$(jq -r .Subject <<<"$message")
  ack=$(jq -r .Reply <<<"$message")
  case $subject in
    *.out.*) publish "${subject/.out./.in.}" "$(jq -r '.Data | @base64d' <<<"$message" | answer)" || ack= ;;
    *.void.*) ;; # nobody waits for that call any more
    *) sleep 1 ;; # none came in time, or before the consumer is there
  esac
  if [[ -n $ack ]]; then nats pub --quiet "$ack" +ACK; fi
  next 30
  read -r -d '' -t 60 -u "${calls[0]}" message || message='{}'
done
