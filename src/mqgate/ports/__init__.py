"""Interfaces to the outside: one Protocol per file, in domain verbs."""
