#!/bin/sh
# Message mode: every message has its own lease and receipt.
set -eu
gate=${1:-http://127.0.0.1:8080}
run=$$

call() { # METHOD PATH [BODY]
    curl -sSf -w '\n' -X "$1" -H "Authorization: Bearer ${MQGATE_KEY:-}" \
        -H 'Content-Type: application/json' ${3:+-d "$3"} "$gate$2"
}
receipt() { printf '%s' "$1" | sed 's/.*"receipt":"\([^"]*\)".*/\1/'; }

call PUT "/v1/topics/example-$run" '{"queues": 4}' > /dev/null
call PUT "/v1/groups/example-workers-$run" "{\"topic\": \"example-$run\", \"maxAttempts\": 5, \"backoff\": [\"1s\", \"10s\"]}" > /dev/null

echo '1. publish'
call POST "/v1/topics/example-$run/messages" '{"body": {"order": 17}, "tag": "new", "properties": {"source": "web"}}'

echo '2. receive: leased for 30 s, delivery 1'
first=$(call POST "/v1/groups/example-workers-$run/receive" '{"max": 1, "wait": 5}')
printf '%s\n' "$first"

echo '3. extend: the work takes longer, the receipt stays the same'
call POST "/v1/groups/example-workers-$run/extend" "{\"receipt\": \"$(receipt "$first")\", \"visibility\": \"5m\"}"

echo '4. nack: the work failed, deliver again after one second'
call POST "/v1/groups/example-workers-$run/nack" "{\"receipt\": \"$(receipt "$first")\", \"delay\": \"1s\", \"reason\": \"no stock\"}"

echo '5. receive again: waits for the redelivery, delivery 2'
second=$(call POST "/v1/groups/example-workers-$run/receive" '{"max": 1, "wait": 5}')
printf '%s\n' "$second"

echo '6. ack twice: a repeated ack has no effect'
call POST "/v1/groups/example-workers-$run/ack" "{\"receipt\": \"$(receipt "$second")\"}"
call POST "/v1/groups/example-workers-$run/ack" "{\"receipt\": \"$(receipt "$second")\"}"

echo '7. the lag is 0'
call GET "/v1/groups/example-workers-$run/lag" | sed 's/,"queues".*/}/'

call DELETE "/v1/groups/example-workers-$run" > /dev/null
call DELETE "/v1/topics/example-$run" > /dev/null
