"""Output formats: findings in, text out."""
