"""The proof: a training program runs before and after the fix, under instruments, and what changed is shown."""
