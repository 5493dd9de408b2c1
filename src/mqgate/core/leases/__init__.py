"""The lease rules, once: the state of a lease scope, and pure steps that change it."""
