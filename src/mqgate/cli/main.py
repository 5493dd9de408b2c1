"""The command `mqgate`: its verbs, its global options, and what its exit codes mean.

0 done; 1 refused by the gateway; 2 a usage error; 3 the gateway did not answer; 130 interrupted.
"""

import gc
import json
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


# Each in the module of its name.
_VERBS = (
    "doctor",
    "group",
    "key",
    "pipeline",
    "producer",
    "pub",
    "scheduled",
    "serve",
    "stack",
    "stats",
    "sub",
    "topic",
)


class _Commands(click.Group):
    """The one place where errors become a line on stderr and an exit code.

    A command is looked up only when it is named: `serve` brings the whole server, `pipeline` Spark, and the others the
    client, which would make every start twice as long.
    """

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command: click.Command = getattr(import_module(f"mqgate.cli.{cmd_name}"), cmd_name)
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


def _explain(ctx: click.Context, error: Exception) -> None:
    """End with what the gateway said, or that it said nothing; whatever else went wrong is a bug, and is left."""
    from mqgate.client import GatewayError, GatewayUnreachable  # noqa: PLC0415 - see above
    from mqgate.stack.errors import StackError  # noqa: PLC0415 - see above

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
            detail += "; what was asked may have been done"
        _fail(ctx, UNREACHABLE, {"code": "gateway_unreachable", "detail": detail, "retryable": True})
    if isinstance(error, StackError):
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
    help="The gateway's address.",
)
@click.option(
    "--key",
    envvar="MQGATE_KEY",
    show_envvar=True,
    help="The API key. Prefer the variable: other users can see a command line.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the API's JSON, errors included.")
@click.pass_context
def cli(ctx: click.Context, url: str, key: str | None, is_json: bool) -> None:
    """One HTTP door to message middleware.

    --url, --key and --json may stand before the command or after it. Exit codes: 0 done; 1 the gateway
    refused (or doctor found a fault); 2 the command was not written correctly; 3 the gateway did not answer.
    """
    ctx.obj = Session(url=url, key=key, is_json=is_json)


def main() -> None:
    """Run `mqgate` with the arguments of this process."""
    # What a start loads stays: to look through it for rubbish every 700 objects takes a tenth of its time.
    gc.set_threshold(100_000)
    cli()


if __name__ == "__main__":
    main()
