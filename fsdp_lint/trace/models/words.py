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
        "FullyShardedDataParallelPlugin",
        "FSDPStrategy",
        "fsdp_config",
        "full_shard",  # in a text: `fsdp="full_shard auto_wrap"`
        "shard_grad_op",
        "hybrid_shard",
        # Functions of frameworks that shard what they get.
        "shard_model",
        "fsdp2_prepare_model",
        "apply_fsdp",
        "apply_fsdp2",
        "apply_fsdp_to_decoder",
        "parallelize_llama",
        "parallelize_deepseekv3",
        # Modules whose imports rules ask for; a function does not reach FSDP by naming one.
        "torch.distributed.fsdp",
        "torch.distributed.checkpoint",
        "torch.distributed.algorithms._checkpoint",
        "torch.distributed._composable",
        "torch.distributed._tensor",
    }
)
# Lightning's strategy by its name, what takes it, and FSDP of transformers 5: a file may say no other word of FSDP.
BY_NAME = frozenset({'strategy="fsdp"', "strategy='fsdp'", "fsdp=True"})
NAMED_TO = frozenset({"Trainer", "Fabric"})
# What a file of settings for accelerate's launcher holds where it speaks of FSDP: all of these.
LAUNCH = (b"distributed_type", b"fsdp_config")
# Classes of transformers and TRL that take `fsdp=` and `fsdp_config=`.
ARGUMENTS = frozenset(
    {
        "TrainingArguments",
        "Seq2SeqTrainingArguments",
        "SFTConfig",
        "DPOConfig",
        "GRPOConfig",
        "KTOConfig",
        "ORPOConfig",
        "CPOConfig",
        "RewardConfig",
        "RLOOConfig",
    }
)
# By these a program may be one that the file for accelerate's launcher is for.
LAUNCHED = ARGUMENTS | {"Accelerator"}
