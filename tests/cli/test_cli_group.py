"""The settings of a group, as options and in output."""

from uuid import uuid4

import pytest


def test_a_group_accepts_every_setting_of_its_mode(done, names):
    """An option must not be ignored."""
    topic, _, _ = names
    group = f"group-{uuid4().hex}"

    done(
        *("group", "create", group, "--topic", topic, "--mode", "broadcast", "--start", "latest"),
        *("--visibility", "45s", "--max-attempts", "4", "--backoff", "1s,5s", "--on-poison", "block"),
        *("--rate-limit", "50", "--client-ttl", "2h"),
    )

    shown = done("group", "show", group)
    assert (shown["mode"], shown["visibility"], shown["maxAttempts"]) == ("broadcast", 45, 4)
    assert (shown["onPoison"], shown["clientTtl"]) == ("block", 7_200)
    assert shown["rateLimit"] == {"rate": 50, "burst": 50}


def test_changing_one_setting_of_a_group_leaves_the_others(done, names):
    """A change must not reset other settings."""
    group = names[2]
    done("group", "update", group, "--visibility", "2m", "--max-attempts", "7")

    changed = done("group", "update", group, "--visibility", "3m")

    assert (changed["visibility"], changed["maxAttempts"], changed["mode"]) == (180, 7, "queue")


def test_the_default_mode_of_a_group_is_message(done, names):
    """Message mode is the simplest one for new users."""
    group = f"group-{uuid4().hex}"

    created = done("group", "create", group, "--topic", names[0])

    assert created["mode"] == "message"


def test_a_group_in_message_mode_accepts_its_own_settings(mqgate, done, names):
    """Filter, order and the limit of leased messages exist only in this mode."""
    group = f"group-{uuid4().hex}"

    done(
        *("group", "create", group, "--topic", names[0], "--ordered", "--max-in-flight", "100"),
        *("--filter-tag", "paid", "--filter-tag", "packed"),
    )

    shown = done("group", "show", group)
    lines = mqgate("group", "show", group).stdout.splitlines()
    assert (shown["ordered"], shown["maxInFlight"], shown["filter"]) == (True, 100, {"tags": ["packed", "paid"]})
    assert ["filter", "tags=packed,paid"] in [line.split() for line in lines]
    assert ["ordered", "yes"] in [line.split() for line in lines]


@pytest.mark.parametrize("written", ["1s,10s,1m", "initial=5s,factor=3,max=1h,jitter=0.5"])
def test_a_backoff_is_shown_in_the_form_of_its_option(mqgate, names, written):
    """Users copy settings from one group to another."""
    group = names[2]
    mqgate("group", "update", group, "--backoff", written)

    lines = mqgate("group", "show", group).stdout.splitlines()

    assert ["backoff", written] in [line.split() for line in lines]


def test_a_part_of_a_backoff_curve_leaves_the_rest_at_its_default(done, names):
    """A maximum can be set without the other parameters."""
    changed = done("group", "update", names[2], "--backoff", "initial=5s,max=1h")

    assert changed["backoff"] == {"initial": 5, "factor": 2, "max": 3_600, "jitter": 0.2}


def test_a_filter_is_replaced_and_removed(done, names):
    """A setting that can be set must be removable."""
    group = f"group-{uuid4().hex}"
    done("group", "create", group, "--topic", names[0], "--filter-tag", "paid")

    replaced = done("group", "update", group, "--filter-tag", "packed")
    lifted = done("group", "update", group, "--no-filter")

    assert replaced["filter"] == {"tags": ["packed"]}
    assert lifted["filter"] is None


def test_a_setting_of_another_mode_is_refused(mqgate, names):
    """An ignored filter would deliver all messages."""
    result = mqgate("group", "update", names[2], "--filter-tag", "paid")

    assert result.exit_code == 1
    assert "filter" in result.stderr
