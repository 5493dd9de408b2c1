#!/bin/sh
# Broadcast mode: every client receives every message, independently of the others.
set -eu
gate=${1:-http://127.0.0.1:8080}
run=$$

call() { # METHOD PATH [BODY]
    curl -sSf -w '\n' -X "$1" -H "Authorization: Bearer ${MQGATE_KEY:-}" \
        -H 'Content-Type: application/json' ${3:+-d "$3"} "$gate$2"
}
receipt() { printf '%s' "$1" | sed 's/.*"receipt":"\([^"]*\)".*/\1/'; }

call PUT "/v1/topics/example-$run" '{"queues": 1}' > /dev/null
call PUT "/v1/groups/example-caches-$run" "{\"topic\": \"example-$run\", \"mode\": \"broadcast\", \"clientTtl\": \"1h\"}" > /dev/null

echo '1. the first receive registers a client at the end of the log'
for client in web-1 web-2; do
    call POST "/v1/groups/example-caches-$run/receive" "{\"clientId\": \"$client\"}"
done

echo '2. publish'
call POST "/v1/topics/example-$run/messages" '{"body": "prices changed"}'

echo '3. both clients receive and ack the message'
for client in web-1 web-2; do
    batch=$(call POST "/v1/groups/example-caches-$run/receive" "{\"clientId\": \"$client\", \"wait\": 5}")
    printf '%s\n' "$batch"
    call POST "/v1/groups/example-caches-$run/ack" "{\"receipt\": \"$(receipt "$batch")\"}"
done

echo '4. each client has its own lag'
call GET "/v1/groups/example-caches-$run/lag?clientId=web-1" | sed 's/,"queues".*/}/'

call DELETE "/v1/groups/example-caches-$run" > /dev/null
call DELETE "/v1/topics/example-$run" > /dev/null
