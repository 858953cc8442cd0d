"""The words by which a file speaks of FSDP; nothing else is imported here, so that the prefilter starts at once."""

WORDS = frozenset(
    {
        "fully_shard",
        "FullyShardedDataParallel",
        "FSDPModule",
        "FSDP",
        "CPUOffloadPolicy",
        "MixedPrecisionPolicy",
        "register_fsdp_forward_method",
        "torch.distributed._composable",
        "torch.distributed._tensor",
    }
)
