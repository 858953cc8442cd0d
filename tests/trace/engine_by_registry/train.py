import sys

from engine import ENGINES, Engine


def make(name, model) -> Engine:
    return ENGINES[name](model)


if __name__ == "__main__":
    made = make(sys.argv[1], None)
