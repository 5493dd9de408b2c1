"""The command `mqgate`: its subcommands, global options and exit codes.

0 success; 1 refused by the gateway; 2 usage error; 3 no response from the gateway; 130 interrupted.
"""

import gc
import json
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from mqgate import __version__
from mqgate.cli.output import examples, plain
from mqgate.cli.session import DEFAULT_URL, Session

__all__ = ["cli", "main"]

REFUSED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130


# Each is defined in the module of the same name.
_VERBS = (
    "alarm",
    "application",
    "audit",
    "doctor",
    "group",
    "key",
    "outbox",
    "pipeline",
    "processed",
    "producer",
    "pub",
    "scheduled",
    "serve",
    "stack",
    "stats",
    "sub",
    "team",
    "topic",
    "user",
)


class _Commands(click.Group):
    """Command group that converts errors to a line on stderr and an exit code.

    A command is imported only when it is called: `serve` imports the server, `pipeline` Spark, and the others the
    client, which would double the start time of every command.
    """

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        try:
            command: click.Command = getattr(import_module(f"mqgate.cli.{cmd_name}"), cmd_name)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package in {"", "mqgate"}:
                raise
            return _incomplete(cmd_name, package)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not ctx.ensure_object(Session).is_json:
                raise
            _fail(ctx, USAGE, {"code": "usage_error", "detail": error.format_message(), "retryable": False})
        except click.exceptions.Exit:
            raise
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except Exception as error:
            _explain(ctx, error)
            raise


def _incomplete(name: str, package: str) -> click.Command:
    """Return the command of a plain install, which has no packages of the gateway: it names the install line."""

    def refuse(_arguments: tuple[str, ...]) -> NoReturn:
        extra = "spark" if name == "pipeline" else "server"
        line = f'pip install "mqgate[{extra}]"'
        raise click.UsageError(f"mqgate {name} needs the package {package}, which is not installed: {line}")

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["_arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        short_help="Requires the server: not installed.",
    )


def _explain(ctx: click.Context, error: Exception) -> None:
    """Exit with the error of the gateway, or because it did not respond. Return for other errors, which are bugs."""
    from mqgate.client import GatewayError, GatewayUnreachable  # noqa: PLC0415 - see above

    if isinstance(error, GatewayError):
        shown = {
            "status": error.status,
            "code": error.code,
            "title": error.title,
            "detail": error.detail,
            "retryable": error.retryable,
        }
        _fail(ctx, REFUSED, shown | error.members)
    if isinstance(error, GatewayUnreachable):
        detail = error.detail
        if error.is_outcome_unknown:
            detail += "; the request may have been executed"
        _fail(ctx, UNREACHABLE, {"code": "gateway_unreachable", "detail": detail, "retryable": True})
    # Only a process that has imported the stack can have its errors.
    stack_errors = sys.modules.get("mqgate.stack.errors")
    if stack_errors is not None and isinstance(error, stack_errors.StackError):
        _fail(ctx, REFUSED, {"code": error.code, "detail": str(error), "retryable": False})


def _fail(ctx: click.Context, exit_code: int, problem: dict[str, Any]) -> NoReturn:
    if ctx.ensure_object(Session).is_json:
        click.echo(json.dumps(problem, ensure_ascii=False), err=True)
    else:
        click.echo(f"error: {plain(problem['detail'])} ({plain(problem['code'])})", err=True)
    ctx.exit(exit_code)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "mqgate serve --demo",
        "mqgate topic create orders --queues 8",
        "mqgate producer create shop --topic orders",
        "mqgate group create billing --topic orders",
        "mqgate pub orders hello --producer shop",
        "mqgate sub billing --once",
    ),
)
@click.version_option(__version__, prog_name="mqgate")
@click.option(
    "--url",
    envvar="MQGATE_URL",
    default=DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="URL of the gateway.",
)
@click.option(
    "--key",
    envvar="MQGATE_KEY",
    show_envvar=True,
    help="API key. Prefer the variable: other users can see command lines.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the JSON of the API, including errors.")
@click.pass_context
def cli(ctx: click.Context, url: str, key: str | None, is_json: bool) -> None:
    """HTTP gateway for message queues.

    --url, --key and --json are accepted before and after the command. Exit codes: 0 success; 1 the gateway refused
    the request (or a check of doctor failed); 2 usage error; 3 the gateway did not respond.
    """
    ctx.obj = Session(url=url, key=key, is_json=is_json)


def main() -> None:
    """Run `mqgate` with the arguments of this process."""
    # Imported objects are never freed. A collection every 700 objects takes a tenth of the start time.
    gc.set_threshold(100_000)
    cli()


if __name__ == "__main__":
    main()
