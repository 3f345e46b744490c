"""Names for the arrays that pass between modules."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
SmallIntArray: TypeAlias = NDArray[np.uint16]
BoolArray: TypeAlias = NDArray[np.bool_]
