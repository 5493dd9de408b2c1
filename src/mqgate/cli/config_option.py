"""The option --config: the settings file of a gateway."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["config_option"]

_DEFAULT = Path("mqgate.toml")


def config_option(help_text: str = "mqgate.toml to read.") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the decorator that adds --config. The first of --config, MQGATE_CONFIG and ./mqgate.toml is used."""
    return click.option(
        "--config", type=click.Path(path_type=Path), envvar="MQGATE_CONFIG", help=help_text, callback=_or_default
    )


def _or_default(_context: click.Context, _option: click.Parameter, config: Path | None) -> Path | None:
    return _DEFAULT if config is None and _DEFAULT.exists() else config
