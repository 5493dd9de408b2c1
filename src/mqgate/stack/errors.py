"""Why a stack is not there.

StackError
├── StackUnavailable   this machine lacks a program; the text names the remedy
└── PartFailed         a server did not come up, or is none of this stack
    └── PortTaken      because somebody else has its port
"""

__all__ = ["PartFailed", "PortTaken", "StackError", "StackUnavailable"]


class StackError(Exception):
    """The stack cannot do what was asked; the text is for people."""

    code = "stack_failed"


class StackUnavailable(StackError):
    code = "stack_unavailable"


class PartFailed(StackError):
    pass


class PortTaken(PartFailed):
    pass
