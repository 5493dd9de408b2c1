-- Take up to `max_count` whole tokens of a producer's bucket. A new bucket is full; the key expires when it would be full
-- again.
-- KEYS[1] the bucket (hash: tokens, at)
-- ARGV[1] map: rate per second, burst, max_count, now in ms (absent: this server's clock)
-- Returns {taken, ms until the next token}
local REQUEST = cmsgpack.unpack(ARGV[1])
local NOW = REQUEST.now
if not NOW then
  local time = redis.call('TIME')
  NOW = time[1] * 1000 + time[2] / 1000
end
local found = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local at = tonumber(found[2]) or NOW
local tokens = math.min((tonumber(found[1]) or REQUEST.burst) + math.max(NOW - at, 0) * REQUEST.rate / 1000,
  REQUEST.burst)
local taken = math.max(math.min(REQUEST.max_count, math.floor(tokens)), 0)
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', math.max(NOW, at)))
-- Lua writes larger numbers in exponent notation, which PEXPIRE rejects.
redis.call('PEXPIRE', KEYS[1], math.min(math.ceil((REQUEST.burst - tokens) * 1000 / REQUEST.rate) + 1000, 1e14))
return cmsgpack.pack({taken, math.max(1 - tokens, 0) * 1000 / REQUEST.rate})
