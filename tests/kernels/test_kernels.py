"""The compiled loops: arithmetic on vectors, and how they reach XLA."""

import sys
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

from userdp.kernels import xla

numba = pytest.importorskip("numba", reason="needs userdp[fast]")
handlers = pytest.importorskip("userdp.kernels.handlers")
lanes = pytest.importorskip("userdp.kernels.lanes")
octets = pytest.importorskip("userdp.kernels.octets")
slopes = pytest.importorskip("userdp.kernels.slopes")


@numba.njit
def exponentials(x, found, count):
    for i in range(0, count, lanes.LANES):
        lanes.store(
            handlers.floats(found), i, count - i, slopes.exp(lanes.load(handlers.floats(x), i, count - i))
        )


def exp(values):
    x = np.concatenate([values, np.zeros(lanes.LANES)]).astype(np.float32)
    found = np.empty_like(x)
    exponentials(x.ctypes.data, found.ctypes.data, len(values))
    return found[: len(values)]


def test_the_exponential():
    x = np.linspace(-87, 88, 100_001).astype(np.float32)
    assert np.max(np.abs(exp(x) / np.exp(x.astype(float)) - 1)) < 2.5e-7
    assert exp([-87.5, -np.inf]).tolist() == [0.0, 0.0]
    assert np.isnan(exp([np.nan])).all()


def test_what_numba_keeps_is_made_again_when_another_file_changes():
    """It looks at the handlers' file alone, so that one names the others."""
    folder = Path(handlers.__file__).parent
    others = sorted(
        set(folder.glob("*.py")) - {folder / name for name in ("__init__.py", "handlers.py", "xla.py")}
    )
    assert zlib.crc32(b"".join(path.read_bytes() for path in others)) == handlers.OTHER_FILES


def sums_of_products(x, y):
    @numba.njit
    def run(x, y, found):
        sums = octets.dot(
            octets.octets_at(handlers.octets(x), 0), octets.octets_at(handlers.octets(y), 0), octets.no_sums()
        )
        lanes.store(handlers.floats(found), 0, lanes.LANES, octets.as_lanes(sums))

    rooms = [np.zeros(2 * octets.OCTETS, np.uint8) for _ in range(2)]
    aligned = [room[-room.ctypes.data % octets.OCTETS :][: octets.OCTETS] for room in rooms]
    aligned[0][:], aligned[1][:] = x, y.view(np.uint8)
    found = np.zeros(lanes.LANES, np.float32)
    run(aligned[0].ctypes.data, aligned[1].ctypes.data, found.ctypes.data)
    return found.astype(int)


@pytest.mark.parametrize("has_dot", [False, octets._HAS_DOT], ids=["plain", "as this processor can"])
def test_products_of_bytes_are_the_same_on_every_processor(has_dot, monkeypatch):
    monkeypatch.setattr(octets, "_HAS_DOT", has_dot)
    rng = np.random.default_rng(0)
    for extreme in (False, True):
        x = np.full(64, 255, np.uint8) if extreme else rng.integers(0, 256, 64).astype(np.uint8)
        y = np.full(64, -128, np.int8) if extreme else rng.integers(-128, 128, 64).astype(np.int8)
        expected = (x.astype(int) * y.astype(int)).reshape(16, 4).sum(axis=1)
        assert sums_of_products(x, y).tolist() == expected.tolist()


@pytest.mark.parametrize("trouble", ["no Numba", "another XLA"])
def test_an_environment_without_the_kernel_is_no_error(trouble, monkeypatch):
    def refuse(*_, **__):
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: version")

    if trouble == "no Numba":
        monkeypatch.setitem(sys.modules, "userdp.kernels.handlers", None)
        monkeypatch.delattr("userdp.kernels.handlers")
    else:
        monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    assert xla.loaded.__wrapped__() is None
