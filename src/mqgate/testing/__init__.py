"""Shipped for adapters from outside: the contracts that every port's adapters prove, and a hand-moved clock.

An adapter subclasses a contract in its own test suite and provides the fixtures that the contract's docstring
names. The contracts need pytest, and pytest-asyncio in mode auto. For failures that show the values compared,
a conftest.py calls `pytest.register_assert_rewrite("mqgate.testing")` before it imports anything from here.
"""
