"""The number of random examples of the models and the OpenAPI document. `make soak` multiplies it by TIMES."""

import os

from hypothesis import HealthCheck, Phase, settings

__all__ = ["TIMES", "examples"]

TIMES = int(os.environ.get("EXAMPLES_TIMES", "1"))
# In CI the same examples every time, and no minutes of shrinking; elsewhere new ones, the failing one made small.
_IS_FIXED = bool(os.environ.get("CI"))


def examples(count: int, steps: int) -> settings:
    """Return the settings of a state machine with this number of examples and steps."""
    return settings(
        max_examples=count * TIMES,
        stateful_step_count=steps,
        deadline=None,
        derandomize=_IS_FIXED,
        phases=[Phase.explicit, Phase.generate, *([] if _IS_FIXED else [Phase.shrink])],
        print_blob=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
