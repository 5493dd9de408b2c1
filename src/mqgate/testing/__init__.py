"""Shipped for adapters from outside: the contracts that every port's adapters prove, and a hand-moved clock."""
