-- The committed offset of each queue of a group; changes nothing.
local scope = scope_of('')
if not scope then return false end
local found = {}
for _, queue in ipairs(call('SMEMBERS', scope.base .. ':queues')) do
  found[#found + 1] = {queue, tonumber(call('HGET', scope.base .. ':queue:' .. queue, 'committed'))}
end
return cmsgpack.pack(found)
