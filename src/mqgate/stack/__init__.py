"""RocketMQ, Redis and PostgreSQL on loopback, in one directory: for a first try, for tests and for benchmarks.

Every server is a process of its own that outlives whoever started it. What runs, and where, stands in `stack.json`
of the directory, so any process can open the stack, and only processes that are proven ours are ever ended.
"""

from mqgate.stack.broker_spec import BrokerSpec
from mqgate.stack.errors import PartFailed, PortTaken, StackError, StackUnavailable
from mqgate.stack.jars import ROCKETMQ_VERSION, jars
from mqgate.stack.java import find_java
from mqgate.stack.part import Part
from mqgate.stack.plan import Extra
from mqgate.stack.stack import Stack

__all__ = [
    "ROCKETMQ_VERSION",
    "BrokerSpec",
    "Extra",
    "Part",
    "PartFailed",
    "PortTaken",
    "Stack",
    "StackError",
    "StackUnavailable",
    "find_java",
    "jars",
]
