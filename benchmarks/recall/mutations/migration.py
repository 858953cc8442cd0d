"""Old names.

M7 imports `fully_shard` from the old private path: old-fsdp2-import.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from recall.editing import Edits
from recall.mutation import Edit, Mutation
from recall.reading import View, written

SHIM = frozenset(
    {
        "fully_shard",
        "FSDPModule",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "CPUOffloadPolicy",
        "register_fsdp_forward_method",
    }
)
OLD = cst.parse_expression("torch.distributed._composable.fsdp")


def plain_imports(view: View) -> Iterator[cst.ImportFrom]:
    """The imports of `fully_shard`, with names that the old path has too, under no condition."""
    index = view.project.index(view.path)
    guarded = {(line.row, line.module) for line in index.import_lines if line.guarded} if index else set()
    for node in view.imports:
        if isinstance(node.names, cst.ImportStar) or node.module is None:
            continue
        imported = {alias.evaluated_name for alias in node.names}
        if written(node.module) == "torch.distributed.fsdp" and "fully_shard" in imported and imported <= SHIM:
            if (view.row(node), "torch.distributed.fsdp") not in guarded:
                yield node


def old_sites(view: View) -> Iterator[Edit]:
    """M7."""
    for node in plain_imports(view):
        assert node.module is not None
        yield Edit(node, "", Edits().replace(node.module, OLD))


MUTATIONS = (Mutation("M7", "import from the old path", old_sites, frozenset({"FSDP901"})),)
