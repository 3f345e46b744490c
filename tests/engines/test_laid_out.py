"""Users on disk are laid out once: what is read afterwards is what was laid out, and nothing is left behind."""

import gc

import jax
import numpy as np
import pytest

from userdp.data import store_users
from userdp.engines import LocalEngine, laid_out
from userdp.problems import Logistic


@pytest.fixture
def stored(tmp_path):
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(60), rng.choice([1, 4, 90], size=60))
    table = {"id": ids, "a": rng.normal(size=len(ids)), "b": rng.normal(size=len(ids)), "y": ids % 2}
    return store_users(table, tmp_path / "users", user="id", label="y", part_bytes=5_000)


def gradients(stored, thetas=(0.0, 0.5, 0.5, 1.0)):
    oracle = LocalEngine().oracle(Logistic(), stored)
    return [oracle.evaluate(np.full(2, theta)).tobytes() for theta in thetas]


def kept(stored):
    return sorted(stored.folder.glob("laid-out-*/*"))


def test_the_second_round_reads_what_the_first_one_wrote(stored, monkeypatch):
    oracle = LocalEngine().oracle(Logistic(), stored)
    first = oracle.evaluate(np.zeros(2))
    assert len(kept(stored)) == len(stored.parts) > 1
    for shard in oracle.workers._shards:
        source, lay_out = shard._source, shard._lay_out
        written, again = source.source.load(lay_out), source.load(lay_out)
        assert jax.tree.structure(written) == jax.tree.structure(again)
        for one, two in zip(jax.tree.leaves(written), jax.tree.leaves(again), strict=True):
            assert one.dtype == two.dtype
            assert np.array_equal(one, two)

    def unread(self, part):
        raise AssertionError

    monkeypatch.setattr(type(stored), "read", unread)
    assert oracle.evaluate(np.ones(2)).shape == first.shape


def test_nothing_is_left_behind(stored):
    gradients(stored)
    gc.collect()
    assert list(stored.folder.glob("laid-out-*")) == []


@pytest.mark.parametrize("broken", ["np.savez", "tempfile.mkdtemp"])
def test_a_full_or_read_only_disk_costs_time_and_not_the_run(stored, monkeypatch, broken):
    expected = gradients(stored)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    module, name = broken.split(".")
    monkeypatch.setattr(getattr(laid_out, module), name, full)
    assert gradients(stored) == expected
    assert kept(stored) == []
