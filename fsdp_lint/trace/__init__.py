"""The abstract run: values and events of a program, in order, in the words of FSDP."""
