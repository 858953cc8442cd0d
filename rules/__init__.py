"""The rules that come with fsdp-lint, one module each."""
