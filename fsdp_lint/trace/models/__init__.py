"""What the libraries mean: which call is which event. The only room that spells library names."""
