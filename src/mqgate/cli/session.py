"""The gateway that a command calls, and how the command prints responses."""

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
    """The global options. Mutable, because they are accepted before and after the command."""

    url: str = DEFAULT_URL
    key: str | None = None
    is_json: bool = False

    def connect(self) -> "Client":
        """Return a client of the gateway. Raise UsageError if the URL or the key is malformed."""
        from mqgate.client import Client  # noqa: PLC0415 - `serve` does not need it

        try:
            # A person decides whether to try again.
            return Client(self.url, self.key, retry_for=0)
        except ValueError as error:
            raise click.UsageError(str(error)) from error

    def show(self, response: Mapping[str, Any], columns: Sequence[str] | None = None) -> None:
        """Print a response as JSON, or as tables."""
        click.echo(as_json(response) if self.is_json else render(response, columns))

    def show_list(self, items: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Print a complete list."""
        self.show({"items": items}, columns)

    def show_page(self, page: Mapping[str, Any], columns: Sequence[str]) -> None:
        """Print one page of a list, and the option for the next page."""
        self.show(page, columns)
        if page.get("next") and not self.is_json:
            note(f"next page: --cursor {page['next']}")

    def confirm(self, response: Mapping[str, Any], sentence: str) -> None:
        """Print a sentence for people, or the response as JSON."""
        click.echo(as_json(response) if self.is_json else sentence)


def _store_option(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and param.name:
        setattr(ctx.ensure_object(Session), param.name, value)


_OPTIONS = (
    click.option("--url", expose_value=False, callback=_store_option, help="URL of the gateway."),
    click.option("--key", expose_value=False, callback=_store_option, help="API key."),
    click.option("--json", "is_json", is_flag=True, expose_value=False, callback=_store_option, help="Print JSON."),
)


def with_session(command: Callable[Concatenate[Session, _P], _R]) -> Callable[_P, _R]:
    """Pass the session to a command, and accept the global options after the command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return click.pass_obj(command)


def with_json(command: Callable[Concatenate[Session, _P], _R]) -> Callable[_P, _R]:
    """Pass the session to a command that calls no gateway, and accept --json after the command."""
    return click.pass_obj(_OPTIONS[-1](command))
