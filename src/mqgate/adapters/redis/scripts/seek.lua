-- Put committed offsets elsewhere and sweep away every lease given before. Per queue from where to where, and how many
-- messages were settled in between and behind; a dry run changes nothing. Queues that the state does not know yet are added
-- where they are wanted.
-- {client, heads, {queue, to} of each, is_dry_run}
local CLIENT, HEADS, TARGETS, IS_DRY_RUN = unpack(R)
local scope = book().open(CLIENT)
if not scope then return false end
local _, strangers = seldom().see_heads(scope, HEADS)
local heads, moves = {}, {}
for _, head in ipairs(HEADS) do heads[head[1]] = head end
for _, queue in ipairs(strangers) do scope.rows[queue] = book().new_row(queue, heads[queue], heads[queue][2]) end
for _, target in ipairs(TARGETS) do
  local queue, to = unpack(target)
  local row = queue_of(scope, queue)
  if row then
    moves[#moves + 1] = {queue, row.committed, to, book().done_around(scope, row, to)}
    if not IS_DRY_RUN then book().move_queue(scope, row, to) end
  end
end
book().close(scope)
if not IS_DRY_RUN then wake(CLIENT) end
return cmsgpack.pack(moves)
