"""Stands in for rich where the processes that tests start look first: there is none.

structlog and httpx bring their terminal dress along where it is installed, as it is here for other reasons and nowhere
else. No gateway and no worker of Spark uses it, and to import it is up to half of what such a process costs to start.
"""

raise ImportError
