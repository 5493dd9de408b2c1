"""Stands in for click where Spark's Python processes look first.

httpx brings its command line along where click, pygments and rich are installed, as they are here for other reasons. No
worker uses it, and to import it is half of what a Python process of Spark costs: twenty of them for a first query.
"""

raise ImportError
