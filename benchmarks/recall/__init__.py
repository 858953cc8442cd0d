"""How much of what it should find the tool does find: right real code is turned into known mistakes."""
