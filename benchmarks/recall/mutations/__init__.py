"""The mutations, one module for each family of mistakes."""

from __future__ import annotations

from recall.mutation import Mutation
from recall.mutations import checkpoint, gradients, granularity, migration, negatives, order, ranks

MUTATIONS: tuple[Mutation, ...] = (
    *order.MUTATIONS,
    *granularity.MUTATIONS,
    *checkpoint.MUTATIONS,
    *gradients.MUTATIONS,
    *ranks.MUTATIONS,
    *migration.MUTATIONS,
    *negatives.MUTATIONS,
)


def by_number(mutation: Mutation) -> tuple[bool, int, str]:
    """The order of the table: positive ones first, each by its number."""
    digits = "".join(c for c in mutation.name if c.isdigit())
    return not mutation.codes, int(digits), mutation.name
