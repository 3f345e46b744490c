"""The public interface is a promise: changing it means changing this file."""

import subprocess
import sys

import userdp
from userdp import means, mechanisms, privacy


def test_userdp():
    assert sorted(userdp.__all__) == [
        "Budget",
        "BudgetExceededError",
        "HuberRegressor",
        "InvalidInputError",
        "LinearRegression",
        "LinearSVC",
        "LogisticRegression",
        "MeanRelease",
        "NotConcentratedError",
        "Plan",
        "PrivacyStatement",
        "PrivacyWarning",
        "QuantileRegressor",
        "Solution",
        "TooFewUsersError",
        "UserDPError",
        "__version__",
        "mean",
        "means",
        "mechanisms",
        "minimize",
        "optimizers",
        "plan",
        "privacy",
        "problems",
    ]


def test_means():
    assert sorted(means.__all__) == [
        "AdaptiveClippedMean",
        "BassilySunMean",
        "ClippedMean",
        "ConcentratedMean",
        "DeletionPTR",
        "FriendlyCoreMean",
        "LevyMean",
        "MeanRelease",
        "mean",
    ]
    assert callable(means.friends.friend_counts)
    assert callable(means.sensitivity.mean_sensitivity)


def test_every_public_name_exists():
    for module in (userdp, means, mechanisms, privacy):
        assert all(hasattr(module, name) for name in module.__all__)


def test_the_numerical_core_needs_neither_opendp_nor_polars():
    """The core runs where only NumPy, SciPy and JAX are installed."""
    script = (
        "import sys\n"
        "sys.modules['opendp'] = sys.modules['polars'] = sys.modules['rich'] = sys.modules['sklearn'] = None\n"
        "import numpy as np\n"
        "from userdp.means import ConcentratedMean\n"
        "x = np.zeros((500, 2))\n"
        "print(ConcentratedMean(1.0).release(x, epsilon=1, delta=1e-6, random_state=0).privacy.certified)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "True", result.stderr
