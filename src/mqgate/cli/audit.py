"""`mqgate audit`: who changed what, when and why."""

import click

from mqgate.cli.output import examples
from mqgate.cli.session import Session, with_session

__all__ = ["audit"]

_COLUMNS = ("at", "actor", "action", "subject", "reason")


@click.command(epilog=examples("mqgate audit --limit 20", "mqgate --json audit | jq .items[0].details"))
@click.option("--limit", type=click.IntRange(1, 1_000), help="Maximum number of entries (default: 100).")
@click.option("--cursor", help="Continue after the page that printed this cursor.")
@with_session
def audit(session: Session, limit: int | None, cursor: str | None) -> None:
    """List audit entries, the newest first."""
    with session.connect() as client:
        page = client.audit(limit=limit, cursor=cursor)
        session.show_page(page, _COLUMNS)
