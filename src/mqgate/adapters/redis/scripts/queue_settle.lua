-- Apply acks, nacks and extends in order. A refused settlement changes nothing.
-- ARGV[5] {settlements}, see queue_acquire.lua
-- Returns {outcome | {outcome, lease end in ms or 0, exhausted message or nil}, ..}
local scopes, known = scopes_of()
local settled = {}
for i, settlement in ipairs(REQUEST[1]) do settled[i] = settlement_reply(settle(scopes, settlement)) end
save_all(known)
for _, scope in pairs(known) do
  if scope and scope.is_freed then wake(scope.client) end
end
return cmsgpack.pack(settled)
