-- Where each queue stands, and which messages must die first.
-- {client, heads}
local scope = open_book('')
if not scope then return false end
seldom().see_heads(scope, R[2])
repeat
  book().end_leases(scope)
until call('ZCOUNT', scope.base .. ':leases', '-inf', NOW) == 0
local leased, waiting, ready = {}, {}, {}
local function count(counts, queue, more) counts[queue] = (counts[queue] or 0) + more end
for _, epoch in ipairs(call('ZRANGE', scope.base .. ':leases', 0, -1)) do
  local grant = grant_at(scope, tonumber(epoch))
  count(leased, grant.queue, grant.open)
end
for _, name in ipairs(call('HKEYS', scope.base .. ':failed')) do
  local queue, offset = name:match('^(.*) (%d+)$')
  local row = book().failed_at(scope, queue, tonumber(offset))
  local grant = grant_at(scope, row.epoch)
  local is_leased = grant and grant.queue == queue and grant.letters[row.offset - grant.start + 1] == OPEN
  -- What retention took the next receive tells.
  if not is_leased and row.offset >= queue_of(scope, queue).min then
    local is_ready = row.ready_at and row.ready_at <= NOW
    count(is_ready and not book().is_doomed(scope, row) and ready or waiting, queue, 1)
  end
end
close_book(scope)
local found = {}
for _, queue in ipairs(call('HKEYS', scope.base .. ':positions')) do
  local row = queue_of(scope, queue)
  found[#found + 1] = {queue = queue, min = row.min, max = row.max, committed = row.committed, cursor = row.cursor,
    ready = (ready[queue] or 0) + math.max(row.max - math.max(row.cursor, row.min), 0), leased = leased[queue] or 0,
    waiting = waiting[queue] or 0, last_client = row.last_client ~= '' and row.last_client or nil,
    last_consumed_at = row.last_consumed_at, attempts = 0, is_blocked = false, expired = row.expired, epoch = row.placing}
end
local doomed = book().dying(scope)
return cmsgpack.pack({positions = found, exhausted = doomed})
