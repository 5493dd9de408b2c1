-- Delete all keys of a group. No arguments. Returns the number of deleted group keys.
scope_slow_path().drop(GROUP)
for _, client in ipairs(call('ZRANGE', SCOPES, 0, -1)) do scope_slow_path().drop(scope_base(client)) end
return call('DEL', TOKENS, SEEN, CLIENTS, SCOPES, PARKED, REMEMBERED)
