"""How `pub --lines` splits its input into batches."""

from mqgate.cli.lines import in_batches


def test_batches_hold_at_most_a_hundred_messages_and_keep_their_order():
    """A batch is one request, and the order of the file must be kept."""
    batches = list(in_batches(b"%d\n" % number for number in range(250)))

    assert [len(batch) for batch in batches] == [100, 100, 50]
    assert [body for batch in batches for _, body in batch] == [b"%d" % number for number in range(250)]


def test_long_lines_make_shorter_batches():
    """A hundred long lines in one request would be refused as too large."""
    batches = list(in_batches([b"x" * 100_000 + b"\n"] * 3))

    assert [len(batch) for batch in batches] == [1, 1, 1]


def test_line_ends_are_removed_and_empty_lines_are_skipped():
    """Line numbers are those of the file, so that an error can be located."""
    (batch,) = in_batches([b"a\r\n", b"\n", b"\r\n", b" \n", b"last"])

    assert batch == [(1, b"a"), (4, b" "), (5, b"last")]


def test_no_lines_make_no_batch():
    """An empty batch would be refused."""
    assert list(in_batches([b"\n"])) == []
