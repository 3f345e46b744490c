"""One small file per method; each runs in the environment of its library, through ``interface``."""
