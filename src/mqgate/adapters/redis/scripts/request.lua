-- Begins every script: the request, the group's rules, the store's clock. Nothing here makes a table or a function, so
-- that a step which needs no more than this is quick (queue_usual.lua).
--
-- KEYS[1] is `<prefix>:{<group>}`, with which every key of a group begins, see scope.lua.
-- ARGV[1] the server's run   ARGV[2] '1': this may have been done before, and its answer lost   ARGV[3] numbers: the
-- group's rules; now, or 0 for this server's clock; a draw of [0, 1)
-- ARGV[4] what is seldom needed: {channel of wake-ups, gateway, group, the backoff's steps if FACTOR is 0}
-- ARGV[5] what the script asks for
--
-- Arrays are MessagePack, both ways, and what never changes is packed numbers: a name for each member would cost more than
-- most steps do.
--
-- A scope counts only under the run of the server that it was made in: a server that starts again may have lost its
-- last writes, and epochs that grow again from an older number would bring old receipts back to life. The number
-- behind it is that of the layout of rows and keys: what another one wrote counts as lost too.
local call = redis.call
local G = KEYS[1]
local RUN, IS_REPEAT = ARGV[1] .. '/4', ARGV[2] == '1'
local MAX_ATTEMPTS, DIES, IS_PAUSED, RATE, BURST, CLIENT_TTL, MAX_IN_FLIGHT, IS_ORDERED, LONGEST_HOLD, MAX_SPAN,
  FIRST_BACKOFF, FACTOR, MOST_BACKOFF, JITTER, NOW, DRAW = struct.unpack('<dddddddddddddddd', ARGV[3])
if NOW == 0 then
  local time = call('TIME')
  NOW = time[1] * 1000 + math.floor(time[2] / 1000)
end
