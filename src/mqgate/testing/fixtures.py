"""Fixtures of pytest for applications: a gateway on the embedded engine.

Put `pytest_plugins = ["mqgate.testing.fixtures"]` into the conftest.py at the root of the tests.
"""

from collections.abc import Iterator

import pytest

from mqgate.testing.server_process import ServerProcess

__all__ = ["mqgate_gateway"]


@pytest.fixture(scope="session")
def mqgate_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Run an open gateway with nothing registered. Its address is `mqgate_gateway.url`."""
    server = ServerProcess(tmp_path_factory.mktemp("gateway")).start()
    yield server
    server.stop()
