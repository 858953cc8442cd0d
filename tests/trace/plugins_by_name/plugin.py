"""Plugins that are called by name: the table is one of the class, for each name one of methods."""

from collections import defaultdict


class Plugin:
    _known = defaultdict(dict)

    def __init__(self, name=None):
        self.name = name

    def register(self, method="__call__"):
        def keep(function):
            self._known[self.name][method] = function
            return function

        return keep

    def __call__(self, *args, **kwargs):
        return self["__call__"](*args, **kwargs)

    def __getattr__(self, method):
        return self[method]

    def __getitem__(self, method):
        if method not in self._known[self.name]:
            raise ValueError(method)
        return self._known[self.name][method]
