"""mq-proxy's /mq surface for its existing clients, on mqgate's own semantics."""
