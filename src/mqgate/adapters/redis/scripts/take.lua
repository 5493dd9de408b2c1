-- Take whole tokens of a bucket, `most` if there are as many: how many it was, and milliseconds until there is one more.
-- Full at first; forgotten when it would be full again. KEYS[1] is the bucket; a limit that changed counts from now on.
local R = cmsgpack.unpack(ARGV[1])
local NOW = R.now
if not NOW then
  local time = redis.call('TIME')
  NOW = time[1] * 1000 + time[2] / 1000
end
local found = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local at = tonumber(found[2]) or NOW
local tokens = math.min((tonumber(found[1]) or R.burst) + math.max(NOW - at, 0) * R.rate / 1000, R.burst)
local taken = math.max(math.min(R.most, math.floor(tokens)), 0)
tokens = tokens - taken
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', math.max(NOW, at)))
-- Three thousand years, beyond which Lua does not write a whole number as one.
redis.call('PEXPIRE', KEYS[1], math.min(math.ceil((R.burst - tokens) * 1000 / R.rate) + 1000, 1e14))
return cmsgpack.pack({taken, math.max(1 - tokens, 0) * 1000 / R.rate})
