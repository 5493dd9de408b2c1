"""Names of Redis keys: keys.py lists every key that a script uses."""

import re
from importlib import resources

from mqgate.adapters.redis import keys

SCRIPTS = resources.files("mqgate.adapters.redis.scripts")
LUA = {file.name: file.read_text("utf-8") for file in SCRIPTS.iterdir() if file.name.endswith(".lua")}
# A string that begins with a colon is the end of a key name, or its middle if it also ends with one.
KEY_PART = re.compile(r"'(:[a-z][a-z:]*)'")
# What such a string is appended to.
BASE = re.compile(r"\b(\w+) \.\. ':[a-z]")


def _lua_table(name: str) -> list[str]:
    """Return the strings of a table in scope.lua."""
    table = re.search(rf"local {name} = \{{(.*?)\}}", LUA["scope.lua"], re.DOTALL)
    assert table is not None
    return re.findall(r"'([^']+)'", table[1])


def test_every_key_that_a_script_builds_is_listed() -> None:
    """A key that is not listed could be left behind by a deleted group, or be missing from access rules."""
    listed = {
        *(f":{name}" for name in keys.SCOPE_KEYS),
        *(f":{name}:" for name in keys.QUEUE_KEYS),
        f":{keys.CLIENT_SCOPE}:",
    }

    built = {part for source in LUA.values() for part in KEY_PART.findall(source)}

    assert built <= listed
    assert {f":{name}" for name in keys.GROUP_KEYS}.isdisjoint(built), "group keys are passed through KEYS"


def test_scripts_build_keys_only_from_the_first_key() -> None:
    """All keys of a script share the hash tag of KEYS[1], else a node of a cluster would refuse them."""
    bases = {base for source in LUA.values() for base in BASE.findall(source)}

    assert bases == {"GROUP", "base"}
    assert "local GROUP = KEYS[1]" in LUA["request.lua"]


def test_deleting_a_scope_deletes_every_listed_key() -> None:
    """A key that survives its scope would be read as part of the next state of the group."""
    assert set(_lua_table("SCOPE_KEYS")) == set(keys.SCOPE_KEYS)
    assert set(_lua_table("QUEUE_KEYS")) == {f"{name}:" for name in keys.QUEUE_KEYS}


def test_group_keys_are_passed_in_the_order_that_scripts_read() -> None:
    """A shifted key would be read with the wrong type, or worse, with the right one."""
    base, *passed = keys.group_keys("mqgate", "billing")
    documented = re.findall(r"^-- KEYS\[\d\] (\w+) ", LUA["request.lua"], re.MULTILINE)
    unpacked = re.search(r"local ([A-Z, ]+) = unpack\(KEYS, 2, 7\)", LUA["scope.lua"])

    assert base == "mqgate:{billing}"
    assert passed == [f"{base}:{name}" for name in documented]
    assert unpacked is not None
    assert [name.lower() for name in unpacked[1].split(", ")] == documented
