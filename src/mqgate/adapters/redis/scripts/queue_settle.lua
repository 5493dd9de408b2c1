-- Apply acks, nacks and extends one by one; an outcome each, and refused ones change nothing.
local scopes, known = scopes_of()
local settled = {}
for i, settlement in ipairs(R.settlements) do settled[i] = told(settle(scopes, settlement)) end
save_all(known)
return cmsgpack.pack(settled)
