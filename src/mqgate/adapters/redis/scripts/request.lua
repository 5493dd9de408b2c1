-- First part of every lease script: the request, the rules of the group, the clock. Creates no table and no function,
-- because a fast path needs none (see queue_fast_path.lua).
--
-- KEYS[1] `<prefix>:{<group>}`: the beginning of all keys of the group. Scripts build scope and queue keys from it, see
--         scope.lua and keys.py.
-- KEYS[2] tokens       hash: token bucket of the group's rate limit
-- KEYS[3] seen         sorted set: clients by time of their last poll
-- KEYS[4] clients      hash: client -> {address, time of the first poll}
-- KEYS[5] scopes       broadcast, sorted set: clients by last contact
-- KEYS[6] remembered   broadcast, hash: number of remembered lease ends of all clients
-- KEYS[7] parked       exists while a receive of any gateway is parked
-- ARGV[1] run id of the server
-- ARGV[2] '1' if the command may have been executed before and its reply was lost
-- ARGV[3] packed numbers: the rules of the group; now in ms, or 0 for this server's clock; a random number of [0, 1)
-- ARGV[4] {wake-up channel, gateway, group, steps of the backoff if FACTOR is 0}
-- ARGV[5] arguments of the script, see its header
--
-- Arrays are MessagePack in both directions, without member names: names would cost more time than most scripts take.
--
-- A scope is valid only for the server run that created it. A restarted server may have lost its last writes; epochs
-- that it would then assign a second time would make old receipts valid again. The number after the run id is the
-- schema version of rows and keys: a scope that was written with another version is not used either.
local call = redis.call
local GROUP = KEYS[1]
local RUN, IS_REPEAT = ARGV[1] .. '/4', ARGV[2] == '1'
local MAX_ATTEMPTS, HAS_DEAD_LETTERS, IS_PAUSED, RATE, BURST, CLIENT_TTL, MAX_IN_FLIGHT, IS_ORDERED, MAX_HOLD, MAX_SPAN,
  FIRST_BACKOFF, FACTOR, MAX_BACKOFF, JITTER, NOW, DRAW = struct.unpack('<dddddddddddddddd', ARGV[3])
if NOW == 0 then
  local time = call('TIME')
  NOW = time[1] * 1000 + math.floor(time[2] / 1000)
end
