"""The dead-letter commands against a running gateway."""

from functools import partial

import pytest

from mqgate.cli.redrive_outcomes import in_slices
from mqgate.client import Client, receipts_of


@pytest.fixture
def dead(done, names, workers, gateway_url):
    """Return the ids of three dead letters of the group `workers`."""
    done("group", "update", workers, "--max-attempts", "1")
    with Client(gateway_url) as client:
        stored = client.publish_batch(names[0], [{"body": body} for body in ("a", "b", "c")])
        client.nack_all(workers, receipts_of(client.receive(workers)), reason="card declined")
    return [result["id"] for result in stored]


def _dead_now(done, group):
    return [item["id"] for item in done("group", "dead-letters", "list", group)["items"]]


def test_dead_letters_are_listed_and_shown_with_their_body(mqgate, workers, dead):
    """An operator needs the message and the reason of its failure."""
    listed = mqgate("group", "dead-letters", "list", workers)
    shown = mqgate("group", "dead-letters", "show", workers, dead[1])

    assert all(letter in listed.stdout for letter in dead)
    fields = [line.split(maxsplit=1) for line in shown.stdout.splitlines()]
    assert ["body", "b"] in fields
    assert ["reason", "card declined"] in fields


def test_a_list_of_dead_letters_continues_at_its_cursor(mqgate, done, workers, dead):
    """A long failure leaves more than one page."""
    first = mqgate("group", "dead-letters", "list", workers, "--limit", "2")
    cursor = first.stderr.split()[-1]

    second = done("group", "dead-letters", "list", workers, "--cursor", cursor)

    assert dead[1] in first.stdout
    assert [item["id"] for item in second["items"]] == dead[2:]


def test_redriven_messages_are_delivered_again_and_the_others_are_kept(mqgate, done, workers, dead):
    """Operators try one message before they redrive all."""
    result = mqgate("group", "dead-letters", "redrive", workers, dead[1])

    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [["ID", "OUTCOME"], [dead[1], "redriven"]]
    assert result.stderr == "note: 1 redriven\n"
    assert mqgate("sub", workers, "--once", "--body").stdout == "b\n"
    assert _dead_now(done, workers) == [dead[0], dead[2]]


def test_all_dead_letters_are_redriven_at_a_rate(mqgate, done, workers, dead):
    """A repaired service must not be overloaded by its backlog."""
    response = done("group", "dead-letters", "redrive", workers, "--all", "--rate", "100")

    assert [result["id"] for result in response["results"]] == dead
    assert mqgate("sub", workers, "--once", "--body").stdout == "a\nb\nc\n"
    assert _dead_now(done, workers) == []


@pytest.mark.parametrize(("verb", "outcome"), [("redrive", "would be redriven"), ("purge", "would be purged")])
@pytest.mark.parametrize("is_all", [False, True], ids=["ids", "all"])
def test_a_dry_run_shows_the_outcome_and_changes_nothing(mqgate, done, workers, dead, verb, outcome, is_all):
    """The output must not claim that something was changed."""
    result = mqgate("group", "dead-letters", verb, workers, *(["--all"] if is_all else dead), "--dry-run")

    assert (result.exit_code, result.stdout.count(outcome)) == (0, 3)
    assert "nothing was changed" in result.stderr
    assert _dead_now(done, workers) == dead


@pytest.mark.parametrize("verb", ["redrive", "purge"])
def test_an_unknown_id_is_exit_code_1_and_the_others_are_processed(mqgate, done, workers, dead, verb):
    """A script must detect a stale list, and the other ids must not be affected."""
    result = mqgate("group", "dead-letters", verb, workers, "nobody", dead[0])

    assert result.exit_code == 1
    assert "1 not found" in result.stderr
    assert _dead_now(done, workers) == dead[1:]


@pytest.mark.parametrize("response", [b"n\n", b"\n", b""], ids=["no", "enter", "end of input"])
def test_purging_all_asks_for_confirmation(mqgate, done, workers, dead, response):
    """A purge cannot be undone, so only an explicit yes confirms it."""
    result = mqgate("group", "dead-letters", "purge", workers, "--all", stdin=response)

    assert (result.exit_code, result.stdout) == (1, "")
    assert f"all dead letters of {workers} (3)" in result.stderr
    assert _dead_now(done, workers) == dead


def test_purging_all_deletes_after_a_yes(mqgate, done, workers, dead):
    """The question states the number of dead letters."""
    result = mqgate("group", "dead-letters", "purge", workers, "--all", stdin=b"y\n")

    assert (result.exit_code, result.stdout.count("purged")) == (0, 3)
    assert _dead_now(done, workers) == []


def test_a_script_purges_all_without_a_question(done, workers, dead):
    """A script would wait for the response forever."""
    response = done("group", "dead-letters", "purge", workers, "--all", "--yes")

    assert {result["id"] for result in response["results"]} == set(dead)
    assert _dead_now(done, workers) == []


def test_an_empty_purge_asks_no_question(mqgate, workers):
    """There is nothing to confirm."""
    result = mqgate("group", "dead-letters", "purge", workers, "--all")

    assert (result.exit_code, result.stdout) == (0, "(none)\n")


def _answer(requests, ids):
    requests.append(list(ids))
    return {"results": [], "more": False}


def test_many_ids_are_sent_in_several_requests():
    """A request accepts at most 1,000 ids, and a repeated id is sent once."""
    requests = []
    ids = [str(number) for number in range(2_500)]

    list(in_slices(partial(_answer, requests), [*ids, "0"]))

    assert [len(request) for request in requests] == [1_000, 1_000, 500]
    assert [message_id for request in requests for message_id in request] == ids


def test_all_slices_together_respect_the_rate():
    """A gateway refuses a request that would take longer than one minute."""
    requests, pauses = [], []

    list(in_slices(partial(_answer, requests), ["a", "b", "c", "d", "e"], 0.5, pauses.append))

    assert requests == [["a", "b"], ["c", "d"], ["e"]]
    assert [round(pause) for pause in pauses] == [0, 4, 8]
