"""Who computes the users' vectors. An engine never clips, weighs or adds noise."""

from userdp.engines.local import GradientOracle, local_oracle

__all__ = ["GradientOracle", "local_oracle"]
