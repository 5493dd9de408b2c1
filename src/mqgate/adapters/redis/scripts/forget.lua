-- Drop all state of a group.
drop(G)
for _, client in ipairs(call('ZRANGE', G .. ':scopes', 0, -1)) do drop(base_of(client)) end
return call('DEL', G .. ':tokens', G .. ':seen', G .. ':clients', G .. ':scopes', G .. ':parked',
  G .. ':remembered')
