"""A server over its ups and downs: connected when it is needed, left alone for a while when it cannot be reached."""

import asyncio
import socket

import pytest
from scripted_server import HandClock, ScriptedServer, answer_to, turns_until

from mqgate.rocketmq.errors import NoResponse, NotSent
from mqgate.rocketmq.peers import Peers
from mqgate.rocketmq.remoting.codes import ResponseCode
from mqgate.rocketmq.transport import KeepAlive, Probe

PROBE = Probe(30, {"topic": "probe"})
FOREVER = 60.0


async def test_calls_share_one_connection(server: ScriptedServer, peers: Peers) -> None:
    """Also those that come while it is being made."""
    server.reply = answer_to
    peer = peers.at(server.address, PROBE)

    await asyncio.gather(*(peers.call(peer, 11, {}) for _ in range(20)))
    await peers.call(peers.at(server.address, PROBE), 11, {})

    assert len(server.links) == 1
    assert not peer.is_down


async def test_a_server_that_is_away_is_tried_with_growing_pauses(
    server: ScriptedServer, peers: Peers, hand_clock: HandClock
) -> None:
    """Callers learn at once that it is away, and it is not flooded while it comes back."""
    peer = peers.at(server.address, PROBE)
    await server.stop()
    pauses = []

    for _ in range(7):
        with pytest.raises(NotSent, match="cannot be reached"):
            await peers.call(peer, 11, {})
        pauses.append(peer._retry_at - hand_clock.now)
        hand_clock.now = peer._retry_at

    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert peer.is_down


async def test_no_try_is_made_before_its_time_and_one_when_it_is_due(
    server: ScriptedServer, peers: Peers, hand_clock: HandClock
) -> None:
    """A server that is back is found with the first call after the pause."""
    peer = peers.at(server.address, PROBE)
    await server.stop()
    with pytest.raises(NotSent):
        await peers.call(peer, 11, {})
    await server.start()
    server.reply = answer_to

    with pytest.raises(NotSent):
        await peers.call(peer, 11, {})
    assert not server.links
    hand_clock.now += 0.05

    assert (await peers.call(peer, 11, {})).code == 0
    assert not peer.is_down


async def test_a_lost_connection_is_made_again(server: ScriptedServer, peers: Peers) -> None:
    """A server that restarts is no server that is away."""
    server.reply = answer_to
    peer = peers.at(server.address, PROBE)
    await peers.call(peer, 11, {})

    server.links[0].hang_up()
    await turns_until(lambda: peer._connection is not None and not peer._connection.is_open)

    assert (await peers.call(peer, 11, {})).code == 0
    assert len(server.links) == 2


async def test_a_server_that_fell_silent_gets_a_new_connection(server: ScriptedServer) -> None:
    """The call that finds out fails at its deadline; the ones behind it work."""
    peers = Peers(None, None, 0.5, keep_alive=KeepAlive(FOREVER, patience=0.1))
    peer = peers.at(server.address, PROBE)
    with pytest.raises(NoResponse):
        await peers.call(peer, 11, {})

    server.reply = answer_to
    assert (await peers.call(peer, 11, {}, deadline=5.0)).code == 0

    assert len(server.links) == 2
    await peers.close()


@pytest.mark.parametrize(
    "address", ["nonsense", "127.0.0.1:http", "127.0.0.1:99999", "127.0.0.1:-1", "[::1:5", "a\x00b:1", "\ud800:1"]
)
async def test_an_address_that_is_none_cannot_be_reached(peers: Peers, address: str) -> None:
    """Addresses come from name servers, which take them from whoever registers."""
    with pytest.raises(NotSent):
        await peers.call(peers.at(address, PROBE), 11, {})


async def test_connecting_counts_against_the_deadline(peers: Peers) -> None:
    """A listener whose queue is full accepts nobody; a caller in a hurry must not wait for it."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        peer = peers.at("127.0.0.1:{1}".format(*full.getsockname()), PROBE)

        async with asyncio.timeout(2.5):
            with pytest.raises(NotSent, match="in time"):
                await peers.call(peer, 11, {}, deadline=0.1)
        await peers.close()


async def test_a_caller_that_gives_up_does_not_end_connecting_for_others(server: ScriptedServer, peers: Peers) -> None:
    """They share the one try."""
    server.reply = answer_to
    peer = peers.at(server.address, PROBE)
    hasty = asyncio.create_task(peers.call(peer, 11, {}))
    patient = asyncio.create_task(peers.call(peer, 11, {}))
    await asyncio.sleep(0)

    hasty.cancel()

    assert (await patient).code == 0
    assert hasty.cancelled()
    assert len(server.links) == 1


async def test_each_caller_gets_an_error_of_its_own(server: ScriptedServer, peers: Peers) -> None:
    """Whoever raises an exception writes its traceback into it."""
    peer = peers.at(server.address, PROBE)
    await server.stop()

    errors = await asyncio.gather(*(peers.call(peer, 11, {}) for _ in range(10)), return_exceptions=True)

    assert {type(error) for error in errors} == {NotSent}
    assert len({id(error) for error in errors}) == 10


async def test_a_server_that_is_leaving_has_done_nothing(server: ScriptedServer, peers: Peers) -> None:
    """It says so itself: the request may go elsewhere, or to a new connection."""
    server.reply = lambda request: answer_to(request, ResponseCode.GO_AWAY)
    peer = peers.at(server.address, PROBE)
    with pytest.raises(NotSent, match="going away"):
        await peers.call(peer, 310, {}, b"x")

    server.reply = answer_to
    assert (await peers.call(peer, 310, {}, b"x")).code == 0

    assert len(server.links) == 2
    await asyncio.wait_for(server.links[0].lost.wait(), 10)


async def test_a_server_that_is_leaving_still_answers_what_it_has(server: ScriptedServer, peers: Peers) -> None:
    """Hanging up on it would leave senders in doubt; and a second farewell must not end the new connection."""
    peer = peers.at(server.address, PROBE)
    calls = [asyncio.create_task(peers.call(peer, 310, {"n": str(n)}, b"x", FOREVER)) for n in range(3)]
    [(link, first), (_, second), (_, third)] = await server.received(3)

    link.send(answer_to(first, ResponseCode.GO_AWAY))
    await asyncio.wait({calls[int(first.fields["n"])]})
    server.reply = answer_to
    assert (await peers.call(peer, 310, {}, b"new")).code == 0
    assert server.requests[-1][0] is not link
    link.send(answer_to(second, ResponseCode.GO_AWAY))
    await asyncio.wait({calls[int(second.fields["n"])]})
    link.send(answer_to(third, body=b"stored"))

    gone, gone_too, stored = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(gone, NotSent)
    assert isinstance(gone_too, NotSent)
    assert not isinstance(stored, BaseException)
    assert stored.body == b"stored"
    await asyncio.wait_for(link.lost.wait(), 10)
    assert (await peers.call(peer, 310, {}, b"new")).code == 0
    assert len(server.links) == 2


async def test_closing_ends_everything(server: ScriptedServer, other: ScriptedServer, peers: Peers) -> None:
    """What was sent has no answer, what comes later is not sent; nobody is left waiting."""
    first, second = peers.at(server.address, PROBE), peers.at(other.address, PROBE)
    calls = [asyncio.create_task(peers.call(peer, 11, {}, b"", FOREVER)) for peer in (first, first, second)]
    await server.received(2)
    await other.received()

    await peers.close()

    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {NoResponse}
    for peer in (first, peers.at("127.0.0.1:1", PROBE)):
        with pytest.raises(NotSent, match="closed"):
            await peers.call(peer, 11, {})
    await asyncio.wait_for(server.links[0].lost.wait(), 10)
    await peers.close()


async def test_closing_while_connecting_is_no_cancellation_of_callers(server: ScriptedServer, peers: Peers) -> None:
    """To a caller it is a request that was not sent; a cancellation would look like its own."""
    peer = peers.at(server.address, PROBE)
    calls = [asyncio.create_task(peers.call(peer, 11, {})) for _ in range(3)]
    await asyncio.sleep(0)
    assert peer._connecting is not None

    await peers.close()

    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(error) for error in errors} == {NotSent}
    assert peer._connecting is None
    assert not peer._open


async def test_closing_ends_also_a_connection_that_is_leaving(server: ScriptedServer, peers: Peers) -> None:
    """It is no longer in use, but somebody waits on it."""
    peer = peers.at(server.address, PROBE)
    calls = [asyncio.create_task(peers.call(peer, 310, {}, b"x", FOREVER)) for _ in range(2)]
    [(link, first), _] = await server.received(2)
    link.send(answer_to(first, ResponseCode.GO_AWAY))
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

    await peers.close()

    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [NotSent, NoResponse]
    await asyncio.wait_for(link.lost.wait(), 10)
