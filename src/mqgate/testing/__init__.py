"""The contracts that every adapter of a port must pass, and a manual clock. Shipped for external adapters.

An adapter subclasses a contract in its own test suite and provides the fixtures that the docstring of the contract
names. The contracts require pytest, and pytest-asyncio in mode auto. For assertion messages with the compared values,
a conftest.py calls `pytest.register_assert_rewrite("mqgate.testing")` before it imports anything from here.
"""
