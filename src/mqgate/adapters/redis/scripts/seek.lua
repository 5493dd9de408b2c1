-- Put committed offsets elsewhere and sweep away every lease given before. Per queue from where to where; a dry run
-- changes nothing. Queues that the state does not know yet are added where they are wanted.
local scope = open_book(R.client)
if not scope then return false end
local _, strangers = see_heads(scope, R.heads)
local heads, moves = {}, {}
for _, head in ipairs(R.heads or {}) do heads[head.queue] = head end
for _, queue in ipairs(strangers) do add_queue(scope, heads[queue], heads[queue].min) end
for _, target in ipairs(R.targets) do
  local row = queue_of(scope, target.queue)
  if row then
    moves[#moves + 1] = {queue = target.queue, old = row.committed, new = target.to}
    if not R.is_dry_run then move_queue(scope, row, target.to) end
  end
end
close_book(scope)
if not R.is_dry_run then wake(R.client) end
return cmsgpack.pack(moves)
