"""A gateway on which the pages are tried, and the program that generates some of them."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from doc_pages import ROOT

from mqgate.testing.server_process import ServerProcess


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[ServerProcess]:
    """`mqgate serve --demo` on an empty data directory."""
    server = ServerProcess(tmp_path / "data", "--demo").start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def generate() -> ModuleType:
    """Return docs/generate.py, which is a program and not part of a package."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
