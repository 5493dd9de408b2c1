-- Apply acks, nacks and extends one by one; an outcome each, and refused ones change nothing.
-- {settlements}
local scope = open_book('')
if not scope then return false end
local settled = settle_all(scope, R[1])
close_book(scope)
return cmsgpack.pack(settled)
