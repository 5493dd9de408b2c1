"""Two Redis lease stores with the same clock and random numbers, of which only one uses the fast path.

Every step runs on both. Their results, their wake-ups and all keys in Redis must be equal.
"""

import asyncio
import random
from typing import Any
from uuid import uuid4

import pytest
import redis as driver
from twin_stores import Side

from mqgate.adapters.redis import lease_store, replies
from mqgate.adapters.redis.client import RedisClient
from mqgate.adapters.redis.lease_store import RedisLeaseStore
from mqgate.testing.clock import ManualClock

# Returns every key with one line per member, in any order.
_DUMP = """
local all = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. ':*')) do
  local kind, lines = redis.call('TYPE', key).ok, {}
  if kind == 'hash' or kind == 'zset' then
    local found = kind == 'hash' and redis.call('HGETALL', key) or redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #found, 2 do
      if found[i] ~= 'incarnation' then lines[#lines + 1] = found[i] .. ' = ' .. found[i + 1] end
    end
  elseif kind == 'set' then
    lines = redis.call('SMEMBERS', key)
  elseif kind == 'list' then
    lines = redis.call('LRANGE', key, 0, -1)
  else
    lines[1] = redis.call('GET', key)
  end
  all[#all + 1] = {key:sub(#ARGV[1] + 1), lines}
end
return all
"""


class FastPathTwins:
    """Pair of stores on a server of its own, because every check reads all keys. `count`: uses of the fast path."""

    def __init__(self, redis_url: str, patch: pytest.MonkeyPatch, max_clients: int) -> None:
        self.clock = ManualClock()
        self.count = 0
        self._redis = driver.Redis.from_url(redis_url)
        self._patch = patch
        self._dice = random.Random()
        self._steps = 0
        self._loop = asyncio.new_event_loop()
        self._server = RedisClient(redis_url, timeout=60.0)
        self._prefixes = [f"test-{uuid4().hex[:12]}" for _ in range(2)]
        self._listeners = [self._redis.pubsub(ignore_subscribe_messages=False) for _ in self._prefixes]
        for listener, prefix in zip(self._listeners, self._prefixes, strict=True):
            listener.subscribe(f"{prefix}:wake")
            listener.get_message(timeout=10)
        options = {"max_clients": max_clients, "clock": self.clock}
        self._short, self._long = (
            Side(RedisLeaseStore(self._server, prefix=prefix, **options)) for prefix in self._prefixes
        )
        self._fast_path_arguments, read = lease_store._fast_path_arguments, replies.read_fast_path

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return read(*arguments)

        patch.setattr(replies, "read_fast_path", counted)
        patch.setattr(lease_store, "_RANDOM", self._dice)
        # This interval uses the real clock: record every client once.
        patch.setattr(lease_store, "_SEEN_INTERVAL", 1e9)

    def clear(self) -> None:
        """Delete the keys of earlier groups."""
        self._redis.flushall()

    def play(self, verb: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of both stores and return the result, or the code of an error."""
        self._steps += 1
        short = self._play(self._short, self._fast_path_arguments, verb, arguments, options)
        long = self._play(self._long, lambda *_: None, verb, arguments, options)
        assert short == long, f"{verb}:\nshort {short}\nlong  {long}"
        short_state, long_state = self._states()
        assert short_state == long_state, verb
        short_wake_ups, long_wake_ups = (self._wake_ups(listener) for listener in self._listeners)
        assert short_wake_ups == long_wake_ups, verb
        return short

    def _play(self, side: Side, encode: Any, verb: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self._patch.setattr(lease_store, "_fast_path_arguments", encode)
        self._dice.seed(self._steps)
        return self._loop.run_until_complete(side.play(verb, arguments, options))

    def _states(self) -> list[dict[bytes, list[Any]]]:
        """Return all keys and values of both stores without the incarnation, which is random."""
        return [{key: sorted(held) for key, held in self._redis.eval(_DUMP, 0, prefix)} for prefix in self._prefixes]

    def _wake_ups(self, listener: Any) -> list[Any]:
        """Return published wake-ups. The reply to PING arrives after all of them."""
        listener.ping()
        found = []
        while (message := listener.get_message(timeout=10))["type"] != "pong":
            found.append(message["data"])
        return found

    def close(self) -> None:
        self._loop.run_until_complete(self._server.close())
        self._loop.close()
        for listener in self._listeners:
            listener.close()
        self._redis.close()
