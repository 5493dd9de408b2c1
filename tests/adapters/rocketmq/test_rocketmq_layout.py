"""The queues of a topic are a total over all brokers, spread evenly, and only ever added."""

from hypothesis import given
from hypothesis import strategies as st

from mqgate.adapters.rocketmq.layout import per_broker, spread

BROKERS = ["broker-a", "broker-b", "broker-c"]


def test_queues_are_spread_evenly() -> None:
    """Eight queues on three brokers are three, three and two."""
    assert sorted(spread({}, BROKERS, 8, "orders").values()) == [2, 3, 3]


def test_one_queue_is_on_one_broker() -> None:
    """A total order needs one queue, however many brokers there are."""
    assert sum(spread({}, BROKERS, 1, "orders").values()) == 1


def test_topics_with_one_queue_are_not_all_on_one_broker() -> None:
    """Otherwise the first broker would serve all small topics."""
    used = {
        broker for topic in range(50) for broker, count in spread({}, BROKERS, 1, f"topic-{topic}").items() if count
    }

    assert used == set(BROKERS)


def test_a_layout_per_broker_is_kept() -> None:
    """Release 0.1.0 counted queues per broker. Its topics keep all of them."""
    layout = {"broker-a": 8, "broker-b": 8}

    assert spread(layout, ["broker-a", "broker-b"], 8, "orders") == layout


def test_new_queues_are_added_where_there_are_fewest() -> None:
    """A broker that joined later gets the next queues."""
    assert spread({"broker-a": 4}, ["broker-a", "broker-b"], 6, "orders") == {"broker-a": 4, "broker-b": 2}


def test_queues_of_a_broker_that_is_down_count() -> None:
    """They come back with it."""
    assert spread({"broker-a": 4, "broker-b": 4}, ["broker-a"], 8, "orders") == {"broker-a": 4, "broker-b": 4}


@given(
    st.dictionaries(st.sampled_from([*BROKERS, "broker-d"]), st.integers(0, 20)),
    st.sets(st.sampled_from(BROKERS), min_size=1),
    st.integers(1, 60),
    st.text(max_size=5),
)
def test_a_layout_only_grows_to_the_total(layout: dict[str, int], brokers: set[str], queues: int, topic: str) -> None:
    """No queue is ever removed, no broker that is down gets one, and a repeat changes nothing."""
    grown = spread(layout, sorted(brokers), queues, topic)

    assert sum(grown.values()) == max(queues, sum(layout.values()))
    assert all(grown[broker] >= count for broker, count in layout.items())
    assert all(grown[broker] == layout.get(broker, 0) for broker in grown.keys() - brokers)
    assert spread(grown, sorted(brokers), queues, topic) == grown


def test_a_private_topic_is_on_every_live_broker() -> None:
    """It can be written while any of them is up."""
    assert per_broker({"broker-a": 2, "broker-c": 1}, ["broker-a", "broker-b"], 1) == {
        "broker-a": 2,
        "broker-b": 1,
        "broker-c": 1,
    }
