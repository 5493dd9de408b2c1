"""SQL tables of statistics: the Spark driver writes them, gateways show them."""
