"""Measurements of speed and accuracy; their results are committed."""
