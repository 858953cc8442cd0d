"""The project as names: what each file defines, imports and calls, and where runs begin."""
