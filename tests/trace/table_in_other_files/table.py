"""The table, and what puts things into it."""

WAYS = {}
SPECS = []


def way(name):
    def keep(function):
        WAYS[name] = function
        return function

    return keep


def add(spec):
    SPECS.append(spec)
