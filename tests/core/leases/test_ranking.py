"""Names by rank."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from mqgate.core.leases.ranking import Ranking

changes = st.lists(st.tuples(st.integers(0, 5), st.none() | st.integers(0, 3)), max_size=300)


@given(changes)
def test_names_are_in_order_after_any_changes(changes: list[tuple[int, int | None]]) -> None:
    """A ranking must agree with sorting, also after its heap was rebuilt."""
    ranking: Ranking[int] = Ranking()
    ranks: dict[int, int] = {}
    for name, rank in changes:
        if rank is None:
            ranking.discard(name)
            ranks.pop(name, None)
        else:
            ranking.set(name, rank)
            ranks[name] = rank

        expected = sorted((rank, name) for name, rank in ranks.items())
        assert ranking.first() == (expected[0] if expected else None)
        with contextlib.closing(ranking.ascending()) as entries:
            assert list(entries) == expected
        assert len(ranking) == len(ranks)


def test_reading_a_part_changes_nothing() -> None:
    """A receive takes the first names only."""
    ranking: Ranking[str] = Ranking()
    for rank, name in enumerate("abc"):
        ranking.set(name, rank)

    with contextlib.closing(ranking.ascending()) as entries:
        first = next(entries)

    assert first == (0, "a")
    with contextlib.closing(ranking.ascending()) as entries:
        assert [name for _, name in entries] == ["a", "b", "c"]
