"""Errors of a stack.

StackError
├── StackUnavailable   a required program is missing; the text names the remedy
└── PartFailed         a server did not start, or is not part of this stack
    └── PortTaken      another process uses its port
"""

__all__ = ["PartFailed", "PortTaken", "StackError", "StackUnavailable"]


class StackError(Exception):
    """An operation of the stack failed."""

    code = "stack_failed"


class StackUnavailable(StackError):
    code = "stack_unavailable"


class PartFailed(StackError):
    pass


class PortTaken(PartFailed):
    pass
