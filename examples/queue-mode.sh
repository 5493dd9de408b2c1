#!/bin/sh
# Queue mode: a receive locks one queue and returns its messages in order, with one receipt.
set -eu
gate=${1:-http://127.0.0.1:8080}
run=$$

call() { # METHOD PATH [BODY]
    curl -sSf -w '\n' -X "$1" -H "Authorization: Bearer ${MQGATE_KEY:-}" \
        -H 'Content-Type: application/json' ${3:+-d "$3"} "$gate$2"
}
receipt() { printf '%s' "$1" | sed 's/.*"receipt":"\([^"]*\)".*/\1/'; }

call PUT "/v1/topics/example-$run" '{"queues": 4}' > /dev/null
call PUT "/v1/groups/example-ledger-$run" "{\"topic\": \"example-$run\", \"mode\": \"queue\"}" > /dev/null

echo '1. publish three messages with one key: one queue, in this order'
call POST "/v1/topics/example-$run/messages" \
    '{"messages": [{"body": "open", "key": "account-7"}, {"body": "deposit", "key": "account-7"}, {"body": "close", "key": "account-7"}]}'

echo '2. receive: the whole queue is locked'
batch=$(call POST "/v1/groups/example-ledger-$run/receive" '{"max": 10}')
printf '%s\n' "$batch"

echo '3. another client receives nothing meanwhile: busy'
call POST "/v1/groups/example-ledger-$run/receive"

echo '4. only the first message is done: commit it and release the queue'
start=$(printf '%s' "$batch" | sed 's/.*"start":\([0-9]*\).*/\1/')
call POST "/v1/groups/example-ledger-$run/ack" "{\"receipt\": \"$(receipt "$batch")\", \"through\": $start}"

echo '5. receive: continues after it'
batch=$(call POST "/v1/groups/example-ledger-$run/receive" '{"max": 10}')
printf '%s\n' "$batch"

echo '6. ack the rest with the next receive: one round trip'
call POST "/v1/groups/example-ledger-$run/receive" "{\"ack\": [\"$(receipt "$batch")\"]}"

call DELETE "/v1/groups/example-ledger-$run" > /dev/null
call DELETE "/v1/topics/example-$run" > /dev/null
