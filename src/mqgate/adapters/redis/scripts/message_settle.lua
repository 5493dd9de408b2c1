-- Apply acks, nacks and extends in order. A refused settlement changes nothing.
-- ARGV[5] {settlements}, see queue_acquire.lua
-- Returns nil: no state | {outcome | {outcome, lease end in ms or 0, exhausted message or nil}, ..}; one entry if all
--        are equal
local scope = open_state('')
if not scope then return false end
local settled = settle_all(scope, REQUEST[1])
close_state(scope)
return cmsgpack.pack(settled)
