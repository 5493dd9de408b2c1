-- Drop all state of a group.
seldom().drop(G)
for _, client in ipairs(call('ZRANGE', G .. ':scopes', 0, -1)) do seldom().drop(base_of(client)) end
return call('DEL', G .. ':tokens', G .. ':seen', G .. ':clients', G .. ':scopes', G .. ':parked',
  G .. ':remembered')
