-- Apply acks, nacks and extends one by one; an outcome each, and refused ones change nothing.
-- {settlements}
local scopes, known = scopes_of()
local settled = {}
for i, settlement in ipairs(R[1]) do settled[i] = told(settle(scopes, settlement)) end
save_all(known)
for _, scope in pairs(known) do
  if scope and scope.is_freed then wake(scope.client) end
end
return cmsgpack.pack(settled)
