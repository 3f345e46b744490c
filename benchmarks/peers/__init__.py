"""Peers and this library in one run: objective x data x method; ``make bench-peers``."""
