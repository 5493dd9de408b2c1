"""The /mq dialect of mq-proxy for its existing clients, with the semantics of mqgate."""
