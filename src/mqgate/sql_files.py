"""SQL files of a package: statements in queries/, numbered schema files in schema/."""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import NamedTuple

__all__ = ["SchemaFile", "query_text", "schema_files", "statements"]

_NO_REPLACEMENTS: Mapping[str, str] = {}


class SchemaFile(NamedTuple):
    """One schema file. Its position in the sorted list is its schema version."""

    name: str
    sql: str


def query_text(package: str, name: str) -> str:
    """Return the text of queries/<name>.sql."""
    return resources.files(package).joinpath("queries", f"{name}.sql").read_text("utf-8")


def statements(package: str, name: str, replacements: Mapping[str, str] = _NO_REPLACEMENTS) -> dict[str, str]:
    """Return the statements of queries/<name>.sql, each of which follows a line `-- name: ...`.

    Each placeholder of `replacements`, such as {columns}, is replaced in the order of the mapping.
    """
    text = query_text(package, name)
    for placeholder, replacement in replacements.items():
        text = text.replace(placeholder, replacement)
    parts = (part.partition("\n") for part in text.split("-- name: ")[1:])
    return {head.strip(): sql.strip() for head, _, sql in parts}


def schema_files(package: str) -> Sequence[SchemaFile]:
    """Return the files of schema/ in order."""
    files = resources.files(package).joinpath("schema").iterdir()
    return sorted(SchemaFile(file.name, file.read_text("utf-8")) for file in files)
