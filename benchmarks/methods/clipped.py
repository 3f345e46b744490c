"""What practice uses: clip each user's mean gradient to the public bound, add noise."""

from benchmarks.methods.method import Method, dp_sgd
from userdp.means import ClippedMean

METHOD = Method("clipping at G", "—", lambda task, seed: dp_sgd(task, ClippedMean(task.lipschitz), seed))
