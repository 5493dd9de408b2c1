-- Settle a dead message, if it is still the one that must die; only then is the answer 1.
local scope = open_book('')
local lease = R.lease
local row = scope and failed_at(scope, lease.queue, lease.start)
if not row or not row.dying or row.epoch ~= lease.epoch or scope.incarnation ~= lease.incarnation then return 0 end
finish(scope, row.queue, row.offset)
close_book(scope)
return 1
