"""Which gateway a command talks to, and how it answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from mqgate.cli.output import as_json, note, render

if TYPE_CHECKING:
    from mqgate.client import Client

__all__ = ["DEFAULT_URL", "Session", "with_json", "with_session"]

DEFAULT_URL = "http://127.0.0.1:8080"
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(slots=True, kw_only=True)
class Session:
    """The global options; mutable, because each may stand before the command or after it."""

    url: str = DEFAULT_URL
    key: str | None = None
    is_json: bool = False

    def connect(self) -> "Client":
        """A client of the gateway; an address or key that cannot be one is the user's mistake."""
        from mqgate.client import Client  # noqa: PLC0415 - who serves needs none

        try:
            return Client(self.url, self.key)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    def show(self, answer: Mapping[str, Any], columns: Sequence[str] | None = None) -> None:
        """Print an answer as the user wants to read it."""
        click.echo(as_json(answer) if self.is_json else render(answer, columns))

    def show_list(self, items: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print a whole list, all of its pages."""
        self.show({"items": items}, columns)

    def show_page(self, page: Mapping[str, Any], columns: Sequence[str]) -> None:
        """Print one page of a list, and how to see the next."""
        self.show(page, columns)
        if page.get("next") and not self.is_json:
            note(f"there are more: --cursor {page['next']}")

    def confirm(self, answer: Mapping[str, Any], sentence: str) -> None:
        """Print what was done where the answer itself says little."""
        click.echo(as_json(answer) if self.is_json else sentence)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and param.name:
        setattr(ctx.ensure_object(Session), param.name, value)


_OPTIONS = (
    click.option("--url", expose_value=False, callback=_remember, help="The gateway's address."),
    click.option("--key", expose_value=False, callback=_remember, help="The API key."),
    click.option("--json", "is_json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON."),
)


def with_session(command: Callable[Concatenate[Session, _P], _R]) -> Callable[_P, _R]:
    """Give a command the session, and let the global options stand after the command as well."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return click.pass_obj(command)


def with_json(command: Callable[Concatenate[Session, _P], _R]) -> Callable[_P, _R]:
    """The same for a command that calls no gateway: only --json may stand after it."""
    return click.pass_obj(_OPTIONS[-1](command))
