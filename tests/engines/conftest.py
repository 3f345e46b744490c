"""What the tests of engines share."""

import pytest

from userdp.engines.local import gradients_of
from userdp.kernels import xla


@pytest.fixture
def without_kernel(monkeypatch):
    monkeypatch.setattr(xla, "loaded", lambda: None)
    gradients_of.cache_clear()
    yield
    gradients_of.cache_clear()
