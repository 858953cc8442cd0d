"""Fixes: what a rule wants changed, and the writing of it."""
