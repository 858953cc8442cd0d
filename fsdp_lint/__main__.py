"""`python -m fsdp_lint`: the same as the command `fsdp-lint`."""

from fsdp_lint.cli import main

if __name__ == "__main__":
    main()
