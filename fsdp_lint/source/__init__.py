"""Files of the project: which there are, what they say, where in them a node stands."""
