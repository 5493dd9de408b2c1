"""Spark's Python processes look for pyspark in an archive first, and compile what they find there, each of them anew.

The same modules are installed beside it, compiled once.
"""

import sys

sys.path[:] = [place for place in sys.path if not place.endswith(("/pyspark.zip", "-src.zip"))]
