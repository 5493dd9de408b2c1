"""Dead letters from the command line, against a running gateway."""

from functools import partial

import pytest

from mqgate.cli.redrive_outcomes import in_slices
from mqgate.client import Client, receipts_of


@pytest.fixture
def dead(done, names, workers, gateway_url):
    """The ids of three messages that the group `workers` failed for the last time."""
    done("group", "change", workers, "--max-attempts", "1")
    with Client(gateway_url) as client:
        stored = client.publish_batch(names[0], [{"body": body} for body in ("a", "b", "c")])
        client.nack_all(workers, receipts_of(client.receive(workers)), reason="card declined")
    return [result["id"] for result in stored]


def _dead_now(done, group):
    return [item["id"] for item in done("group", "dead-letters", "list", group)["items"]]


def test_dead_letters_are_listed_and_shown_with_their_body(mqgate, workers, dead):
    """Whoever repairs a message needs to see it, and why it failed."""
    listed = mqgate("group", "dead-letters", "list", workers)
    shown = mqgate("group", "dead-letters", "show", workers, dead[1])

    assert all(each in listed.stdout for each in dead)
    fields = [line.split(maxsplit=1) for line in shown.stdout.splitlines()]
    assert ["body", "b"] in fields
    assert ["reason", "card declined"] in fields


def test_a_list_of_dead_letters_goes_on_at_its_cursor(mqgate, done, workers, dead):
    """A bad night leaves more than one page."""
    first = mqgate("group", "dead-letters", "list", workers, "--limit", "2")
    cursor = first.stderr.split()[-1]

    second = done("group", "dead-letters", "list", workers, "--cursor", cursor)

    assert dead[1] in first.stdout
    assert [item["id"] for item in second["items"]] == dead[2:]


def test_redriven_messages_come_again_and_the_others_stay_dead(mqgate, done, workers, dead):
    """One is tried before all are."""
    result = mqgate("group", "dead-letters", "redrive", workers, dead[1])

    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [["ID", "OUTCOME"], [dead[1], "redriven"]]
    assert result.stderr == "note: 1 redriven\n"
    assert mqgate("sub", workers, "--once", "--body").stdout == "b\n"
    assert _dead_now(done, workers) == [dead[0], dead[2]]


def test_all_dead_letters_are_redriven_at_a_rate(mqgate, done, workers, dead):
    """A repaired service should not be felled by the backlog of its own failure."""
    answer = done("group", "dead-letters", "redrive", workers, "--all", "--rate", "100")

    assert [result["id"] for result in answer["results"]] == dead
    assert mqgate("sub", workers, "--once", "--body").stdout == "a\nb\nc\n"
    assert _dead_now(done, workers) == []


@pytest.mark.parametrize(("verb", "outcome"), [("redrive", "would be redriven"), ("purge", "would be purged")])
@pytest.mark.parametrize("is_all", [False, True], ids=["ids", "all"])
def test_a_dry_run_says_what_would_happen_and_changes_nothing(mqgate, done, workers, dead, verb, outcome, is_all):
    """People look before they leap, and are not told that they leapt."""
    result = mqgate("group", "dead-letters", verb, workers, *(["--all"] if is_all else dead), "--dry-run")

    assert (result.exit_code, result.stdout.count(outcome)) == (0, 3)
    assert "nothing was changed" in result.stderr
    assert _dead_now(done, workers) == dead


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_an_id_that_is_not_dead_is_exit_code_1_and_the_others_are_done(mqgate, done, workers, dead, verb):
    """A script learns that its list is stale, and the rest of it is not held up."""
    result = mqgate("group", "dead-letters", verb, workers, "nobody", dead[0])

    assert result.exit_code == 1
    assert "1 not found" in result.stderr
    assert _dead_now(done, workers) == dead[1:]


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b""], ids=["no", "enter", "nobody there"])
def test_purging_all_asks_first_and_anything_but_yes_is_no(mqgate, done, workers, dead, answer):
    """It cannot be undone."""
    result = mqgate("group", "dead-letters", "purge", workers, "--all", stdin=answer)

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"all dead letters of {workers} (3)" in result.stderr
    assert _dead_now(done, workers) == dead


def test_purging_all_throws_them_away_after_a_yes(mqgate, done, workers, dead):
    """The question counts what it is about."""
    result = mqgate("group", "dead-letters", "purge", workers, "--all", stdin=b"y\n")

    assert (result.exit_code, result.stdout.count("purged")) == (0, 3)
    assert _dead_now(done, workers) == []


def test_a_script_purges_all_without_being_asked(done, workers, dead):
    """A question that nobody answers would hang it."""
    answer = done("group", "dead-letters", "purge", workers, "--all", "--yes")

    assert {result["id"] for result in answer["results"]} == set(dead)
    assert _dead_now(done, workers) == []


def test_nothing_to_purge_is_no_question(mqgate, workers):
    """Nobody can be sure of nothing."""
    result = mqgate("group", "dead-letters", "purge", workers, "--all")

    assert (result.exit_code, result.stdout) == (0, "(none)\n")


def _answer(requests, ids):
    requests.append(list(ids))
    return {"results": [], "more": False}


def test_more_ids_than_one_request_takes_are_several_requests():
    """A gateway takes a thousand at a time, a person has five thousand; one named twice is one."""
    requests = []
    ids = [str(number) for number in range(2_500)]

    list(in_slices(partial(_answer, requests), [*ids, "0"]))

    assert [len(request) for request in requests] == [1_000, 1_000, 500]
    assert [each for request in requests for each in request] == ids


def test_slices_together_keep_to_the_rate():
    """A slow rate is many short requests: a gateway refuses one that takes longer than a minute."""
    requests, pauses = [], []

    list(in_slices(partial(_answer, requests), ["a", "b", "c", "d", "e"], 0.5, pauses.append))

    assert requests == [["a", "b"], ["c", "d"], ["e"]]
    assert [round(pause) for pause in pauses] == [0, 4, 8]
