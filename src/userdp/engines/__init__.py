"""Who computes the users' vectors. An engine never clips, weighs or adds noise by itself."""

from userdp.engines.interface import Engine, LocalEngine
from userdp.engines.local import GradientOracle, local_oracle
from userdp.engines.ray import RayEngine
from userdp.engines.shards import ShardedOracle

__all__ = ["Engine", "GradientOracle", "LocalEngine", "RayEngine", "ShardedOracle", "local_oracle"]
