"""The command `mqgate`: its verbs, its global options, and what its exit codes mean.

0 done; 1 refused by the gateway; 2 a usage error; 3 the gateway did not answer; 130 interrupted.
"""

import json
from typing import Any, NoReturn

import click

from mqgate import __version__
from mqgate.cli.doctor import doctor
from mqgate.cli.group import group
from mqgate.cli.key import key
from mqgate.cli.output import examples, plain
from mqgate.cli.producer import producer
from mqgate.cli.pub import pub
from mqgate.cli.scheduled import scheduled
from mqgate.cli.session import DEFAULT_URL, Session
from mqgate.cli.stack import stack
from mqgate.cli.stats import stats
from mqgate.cli.sub import sub
from mqgate.cli.topic import topic
from mqgate.client import GatewayError, GatewayUnreachable
from mqgate.stack.errors import StackError

__all__ = ["cli", "main"]

REFUSED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130


class _Commands(click.Group):
    """The one place where errors become a line on stderr and an exit code.

    `serve` is looked up only when it is named: it brings the whole server, and doubles the start of every command. And
    `pipeline`, which brings Spark.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "pipeline", "serve"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "serve":
            from mqgate.cli.serve import serve  # noqa: PLC0415 - see above

            return serve
        if cmd_name == "pipeline":
            from mqgate.cli.pipeline import pipeline  # noqa: PLC0415 - see above

            return pipeline
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GatewayError as error:
            shown = {
                "status": error.status,
                "code": error.code,
                "title": error.title,
                "detail": error.detail,
                "retryable": error.retryable,
            }
            _fail(ctx, REFUSED, shown | error.members)
        except GatewayUnreachable as error:
            detail = error.detail
            if error.is_outcome_unknown:
                detail += "; what was asked may have been done"
            _fail(ctx, UNREACHABLE, {"code": "gateway_unreachable", "detail": detail, "retryable": True})
        except StackError as error:
            _fail(ctx, REFUSED, {"code": error.code, "detail": str(error), "retryable": False})
        except click.UsageError as error:
            if not ctx.ensure_object(Session).is_json:
                raise
            _fail(ctx, USAGE, {"code": "usage_error", "detail": error.format_message(), "retryable": False})
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _fail(ctx: click.Context, exit_code: int, problem: dict[str, Any]) -> NoReturn:
    if ctx.ensure_object(Session).is_json:
        click.echo(json.dumps(problem, ensure_ascii=False), err=True)
    else:
        click.echo(f"error: {plain(problem['detail'])} ({plain(problem['code'])})", err=True)
    ctx.exit(exit_code)


@click.group(
    cls=_Commands,
    commands=[topic, producer, group, key, pub, sub, scheduled, stats, doctor, stack],
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
    cli()


if __name__ == "__main__":
    main()
