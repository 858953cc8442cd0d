# Nothing in the project switches the sharding on: it is there for the library's users, and is looked at all the same.
import torch.nn as nn

from prepare import prepare


def main():
    return prepare(nn.Linear(8, 8))


if __name__ == "__main__":
    main()
