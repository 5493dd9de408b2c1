-- Return the committed offsets of a group. No arguments. Changes nothing.
-- Returns nil: no state | {{queue, committed}, ..}
local scope = scope_of('')
if not scope then return false end
local found, lines = {}, call('HGETALL', scope.base .. ':positions')
for i = 1, #lines, 2 do found[#found + 1] = {lines[i], tonumber(lines[i + 1]:match('committed=(%d+)'))} end
return cmsgpack.pack(found)
