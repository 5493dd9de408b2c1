-- Settle a dead message, if it is still the one that must die; only then is the answer 1.
-- {lease: client, queue, start, next, epoch, incarnation; whether retention took it before anybody could keep it}
local _, queue, start, _, epoch, incarnation = unpack(R[1])
local scope = open_book('')
local row = scope and book().failed_at(scope, queue, start)
if not row or not row.dying or row.epoch ~= epoch or scope.incarnation ~= incarnation then return 0 end
book().finish(scope, queue, start)
if R[2] then
  local its = queue_of(scope, queue)
  its.expired, its.is_changed = its.expired + 1, true
end
close_book(scope)
return 1
