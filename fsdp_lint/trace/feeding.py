"""Questions about data: whether each rank gets a part of its own."""

from __future__ import annotations

import re

from fsdp_lint.source.structure import program_below
from fsdp_lint.trace.events import Backward, BuildLoader, Forward, MakeMesh, Seed, Shard
from fsdp_lint.trace.trace import Trace, touches
from fsdp_lint.trace.values import Class, Const, Instance, Object, Rank, Unknown, Value, WorldSize, made_of, parts

# Words by which a file divides data among ranks, or a name says that a loader is not for training.
DIVIDES = re.compile(
    r"DistributedSampler\(|BatchSampler\(|split_dataset_by_node|num_shards|\.shard\(|num_replicas|world_size\s*\)|rank\s*::|"
    r"\[\s*\w*rank\w*\s*[\]*:]|\*\s*\w*rank|\w*rank\w*\s*\*|%\s*\w*world|%\s*\w*size|chunk\(|Stateful|\(IterableDataset\)|"
    r"\.skip\(|islice|scatter\(|broadcast|range\([^\n]*rank|get_rank\(\)\s*[\]:]"
)
NOT_TRAINING = re.compile(r"val|eval|test|dev|infer|pred|calib|sample", re.IGNORECASE)
PARALLEL = re.compile(r"^(tp|cp|sp|pp|ep|tensor|context|sequence|pipe|pipeline|expert|model)\w*$", re.IGNORECASE)
BLIND = frozenset({"torch.utils.data.RandomSampler", "torch.utils.data.SequentialSampler"})
KNOWN = ("torch.utils.data.", "torchvision.datasets.", "torchaudio.datasets.")


def whole_on_each_rank(trace: Trace, build: BuildLoader) -> Forward | None:
    """The training forward for which a loader gives every rank the same data; None where it does not, or may not."""
    given = [build.kwargs.get(name) for name in ("sampler", "batch_sampler", "generator", "worker_init_fn")]
    if not build.kwargs_known or any(
        value is not None and not _is_none(value) and not _is_blind(value, build) for value in given
    ):
        return None
    if (
        NOT_TRAINING.search(build.loader.name)
        or NOT_TRAINING.search(build.dataset.name)
        or not _is_whole(build.dataset)
        or _is_by_rank(build.dataset)
    ):
        return None
    if any(part is build.loader for event in trace.handed(build.loader) for v in event.values for part in parts(v)):
        return None
    if any(seed.differs != "" for seed in trace.every(Seed)) or _has_other_parallelism(trace):
        return None
    for forward in trace.every(Forward):
        if forward.order < build.order or not forward.loops or not trace.before(build, forward):
            continue
        if any(touches(shard.module, forward.module) for shard in trace.every(Shard)) and _trains(trace, forward):
            return None if _divides(build, forward) else forward
    return None


def _is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def _is_blind(value: Value, build: BuildLoader) -> bool:
    """True for a sampler of torch that goes through all of the loader's data on each rank."""
    return (
        isinstance(value, Object)
        and value.cls in BLIND
        and value.args == (build.dataset,)
        and not value.kwargs.keys() - {"replacement", "num_samples"}
    )


def _is_whole(dataset: Value) -> bool:
    """True for data of a known kind: of torch or torchvision, of a class of the project, or `load_dataset(...)`."""
    if isinstance(dataset, Instance):
        return not _speaks_of_ranks(dataset.cls)
    if isinstance(dataset, Object):
        return dataset.cls.startswith(KNOWN)
    if isinstance(dataset, Unknown):
        return any(one.name.startswith("load_dataset(") for one in dataset.line())
    return False


def _is_by_rank(dataset: Value) -> bool:
    """True for data that is made with the process's number or the number of processes."""
    return any(isinstance(one, Rank | WorldSize) for one in made_of(dataset))


def _speaks_of_ranks(cls: Class) -> bool:
    if cls.node is None:
        return True
    values = (getattr(node, "value", None) for node in program_below(cls.node))
    words = {value for value in values if isinstance(value, str)}
    return any(re.search(r"rank|world|shard|worker|Iterable|__iter__|distributed", word) for word in words)


def _has_other_parallelism(trace: Trace) -> bool:
    """True where ranks may need the same data: tensor, context or pipeline parallelism."""
    return any(
        PARALLEL.match(name)
        for made in trace.every(MakeMesh)
        for name in (made.mesh.dimension_names() or ("model",))
        if made.mesh.dimensions() != 1
    )


def _trains(trace: Trace, forward: Forward) -> bool:
    return any(set(backward.loops) & set(forward.loops) for backward in trace.every(Backward))


def _divides(build: BuildLoader, forward: Forward) -> bool:
    """True where a file that has to do with the loader divides data by rank in its own way."""
    sites = {site.source.path: site.source for event in (build, forward) for site in (event.site, *event.stack)}
    return any(DIVIDES.search(source.text) for source in sites.values())
