"""InterruptedRunError runs: the same answer, no second noise, nothing left behind."""

import os
import signal
import stat
import subprocess
import sys
import textwrap
from functools import partial

import jax
import numpy as np
import pytest

from userdp.data import Users
from userdp.engines import LocalEngine
from userdp.errors import InvalidInputError, NotConcentratedError
from userdp.means import ConcentratedMean
from userdp.mechanisms.noise import SecureNoise, SeededNoise
from userdp.mechanisms.recorded import RecordedNoise
from userdp.optimizers import DPSGD, Checkpoint
from userdp.problems import JaxLoss, L2Ball, SquaredDistance
from userdp.training import minimize

N, D, T = 300, 2, 30
# The gate is set up for fewer users than agree here, so that it does not fail once in a thousand runs.
AGREEMENT = 0.95


def users(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return Users.from_rows(rng.normal(0.5, 0.1, size=(2 * n, D)), np.repeat(np.arange(n), 2))


def train(data, folder=None, seed=3, radius=1.0, mean=None, **more):
    mean = mean or ConcentratedMean(radius, agreement=AGREEMENT, gate="deferred")
    return minimize(
        SquaredDistance(), data, optimizer=DPSGD(T, 0.3), mean=mean,
        epsilon=4.0, delta=1e-6, random_state=seed, checkpoint=folder, **more,
    )  # fmt: skip


class InterruptedRunError(Exception):
    pass


def interrupt_after(monkeypatch, saves):
    """Stop the run right after it has written its state so many times."""
    from userdp.optimizers.checkpoint import RoundFile

    plain, count = RoundFile.save, []

    def save(self, done, carry):
        plain(self, done, carry)
        count.append(done)
        if len(count) == saves:
            raise InterruptedRunError

    monkeypatch.setattr(RoundFile, "save", save)


def test_a_checkpoint_changes_nothing_and_leaves_nothing(tmp_path):
    folder = tmp_path / "run"
    assert train(users(), folder).point.tobytes() == train(users()).point.tobytes()
    assert not folder.exists()


@pytest.mark.parametrize("seed", [3, None])
def test_a_resumed_run_draws_nothing_twice(tmp_path, monkeypatch, seed):
    folder, asked = tmp_path / "run", []
    for source in (SecureNoise, SeededNoise):
        for law in ("discrete_gaussian", "generator"):
            plain = getattr(source, law)

            def counted(self, *arguments, plain=plain, law=law):
                asked.append((law, *arguments))
                return plain(self, *arguments)

            monkeypatch.setattr(source, law, counted)
    monkeypatch.setattr(Checkpoint.__init__, "__defaults__", (10,))
    with monkeypatch.context() as interruption:
        interrupt_after(interruption, 2)
        with pytest.raises(InterruptedRunError):
            train(users(), folder, seed)
    first = len(asked)
    assert first == 2  # the smoothing's key, the noise of all rounds; not yet the gate's
    noise = [path.read_bytes() for path in sorted(folder.glob("draw-*"))]
    with monkeypatch.context() as interruption:
        interrupt_after(interruption, 1)
        with pytest.raises(InterruptedRunError):
            train(users(), folder, seed)
    again = 0 if seed is None else first  # a seed's sequence is gone through once more, and not used
    assert asked[first:] == asked[:again]
    assert [path.read_bytes() for path in sorted(folder.glob("draw-*"))] == noise
    point = train(users(), folder, seed).point
    assert len(asked) == first + 2 * again + 1  # the gate's noise, once
    if seed is not None:
        assert point.tobytes() == train(users()).point.tobytes()


def test_a_mean_that_is_asked_round_by_round_starts_again_with_the_same_noise(tmp_path, monkeypatch):
    from userdp.means.certified import _GaussianSession

    folder, options = tmp_path / "run", {"mean": ConcentratedMean(1.0, agreement=AGREEMENT, gate="gaussian")}
    plain, answers = _GaussianSession.answer, []

    def answer(self, vectors):
        answers.append(plain(self, vectors).tobytes())
        if len(answers) == 8:
            raise InterruptedRunError
        return np.frombuffer(answers[-1])

    monkeypatch.setattr(_GaussianSession, "answer", answer)
    with pytest.raises(InterruptedRunError):
        train(users(n=3_000), folder, None, **options)
    train(users(n=3_000), folder, None, **options)
    assert answers[8:16] == answers[:8]
    assert len(answers) == 8 + T
    assert not folder.exists()


def test_the_gate_s_noise_survives_a_crash_after_it(tmp_path, monkeypatch):
    from userdp.means import loops

    folder, drawn = tmp_path / "run", []

    class Gate(loops.DeferredGate):
        def passes(self):
            drawn.append(int(self.noise.discrete_gaussian(self.scale, 1)[0]))
            raise InterruptedRunError

    with monkeypatch.context() as crash:
        crash.setattr(loops, "DeferredGate", Gate)
        for _ in range(2):
            with pytest.raises(InterruptedRunError):
                train(users(), folder, seed=None)
    assert drawn[0] == drawn[1]


def test_other_data_or_arguments_are_refused_before_any_draw_is_repeated(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as interruption:
        interrupt_after(interruption, 1)
        with pytest.raises(InterruptedRunError):
            train(users(), folder)
    moved = users()
    moved.rows[0, 0] += 1e-9
    for attempt in (
        lambda: train(moved, folder),
        lambda: train(users(), folder, radius=1.1),
        lambda: train(users(), folder, min_items=2),
        lambda: train(users(), folder, seed=4),
        lambda: train(users(), folder, engine=LocalEngine(storage="int8")),
        lambda: train(users(), folder, engine=LocalEngine(storage="float16")),
    ):
        with pytest.raises(InvalidInputError, match="other data or with other arguments"):
            attempt()
    assert train(users(), folder).point.tobytes() == train(users()).point.tobytes()


@pytest.mark.parametrize("part", ["rows", "offsets", "targets"])
def test_any_part_of_the_data_that_changes_makes_another_run(tmp_path, part):
    data = Users(
        np.arange(12.0).reshape(6, 2), np.array([0, 2, 4, 6]), np.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    )
    with Checkpoint(tmp_path / "run") as run:
        run.noise(SeededNoise(0), data)
    changed = {name: getattr(data, name).copy() for name in ("rows", "offsets", "targets")}
    changed[part].flat[1] += 1
    with Checkpoint(tmp_path / "run") as run:
        run.noise(SeededNoise(0), data)
        with pytest.raises(InvalidInputError, match="other data"):
            run.noise(SeededNoise(0), Users(**changed))


def test_any_change_of_a_function_or_of_a_long_array_is_another_run(tmp_path):
    """The same noise on another function of the data would show the difference."""

    def loss(factor, power=2):
        return JaxLoss(lambda theta, z: factor * ((theta - z) ** power).sum())

    long = np.zeros(5_000)
    long[2_500] = 1e-9
    first = (loss(1.0), np.zeros(5_000), L2Ball(1.0))
    with Checkpoint(tmp_path / "run") as kept:
        kept.noise(SeededNoise(0), users(), *first)
        kept.noise(SeededNoise(0), users(), loss(1.0), np.zeros(5_000), L2Ball(1.0))
        other = JaxLoss(lambda theta, z: 1.0 * ((theta - z) ** 2).sum() + theta.sum())
        for changed in (loss(1.1), loss(1.0, 4), other):
            with pytest.raises(InvalidInputError, match="other arguments"):
                kept.noise(SeededNoise(0), users(), changed, *first[1:])
        for changed in (long, np.zeros(5_001)):
            with pytest.raises(InvalidInputError, match="other arguments"):
                kept.noise(SeededNoise(0), users(), first[0], changed, first[2])
        with pytest.raises(InvalidInputError, match="other arguments"):
            kept.noise(SeededNoise(0), users(), *first[:2], L2Ball(1.0, 0.5))


def test_a_refused_run_is_over(tmp_path):
    scattered = Users.from_rows(np.arange(N * D, dtype=float).reshape(N, D), np.arange(N))
    with pytest.raises(NotConcentratedError):
        train(scattered, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_ends_forgets_its_name_before_its_noise(tmp_path, monkeypatch):
    """Killed while it cleans up, or unable to: what is left cannot be resumed, so no answer gets a second noise."""
    folder = tmp_path / "run"
    monkeypatch.setattr("userdp.optimizers.checkpoint.shutil.rmtree", lambda *_, **__: None)
    train(users(), folder)
    assert any(folder.glob("draw-*"))
    next(folder.glob("draw-*")).unlink()
    with pytest.raises(InvalidInputError, match="give a new folder"):
        train(users(), folder)


def test_a_run_that_cannot_be_ended_releases_nothing(tmp_path, monkeypatch):
    def refuse(self, missing_ok=False):
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(InvalidInputError, match="cannot end the run"):
        train(users(), tmp_path / "run")


def test_the_folder_says_that_it_is_sensitive_and_is_its_owner_s(tmp_path):
    with Checkpoint(tmp_path / "run") as kept:
        noise = kept.noise(SeededNoise(0), users())
        noise.discrete_gaussian(100.0, 3)
        assert "as sensitive as the data" in (kept.folder / "SENSITIVE").read_text()
        assert stat.S_IMODE(kept.folder.stat().st_mode) == 0o700
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept.folder.iterdir())
        with pytest.raises(InvalidInputError, match="another process"):
            Checkpoint(kept.folder)


def test_every_law_is_repeated_and_another_question_is_refused(tmp_path):
    def play(source):
        return [
            source.discrete_gaussian(10.0, 4).tolist(),
            source.discrete_laplace(3.0, 2).tolist(),
            source.geometric(3.0, 2).tolist(),
            source.permutation(6).tolist(),
            source.generator().random(3).tolist(),
        ]

    first = play(RecordedNoise(SecureNoise(), tmp_path))
    assert play(RecordedNoise(SecureNoise(), tmp_path)) == first
    with pytest.raises(InvalidInputError, match="another run"):
        RecordedNoise(SecureNoise(), tmp_path).discrete_gaussian(10.5, 4)


def test_killed_processes_resume_to_the_same_answer(tmp_path):
    """kill -9 again and again, at whatever point the process has reached."""
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, os, signal, threading
            sys.path[:0] = sys.argv[3].split(os.pathsep)
            sys.path.append(sys.argv[4])
            from tests.optimizers.test_checkpoint import train, users, Checkpoint
            from userdp.optimizers.checkpoint import RoundFile
            Checkpoint.__init__.__defaults__ = (5,)
            plain, left = RoundFile.save, [int(sys.argv[2])]
            def save(self, done, carry):
                plain(self, done, carry)
                left[0] -= 1
                if left[0] == 0:
                    threading.Timer(0.0005, os.kill, (os.getpid(), signal.SIGKILL)).start()
            RoundFile.save = save
            print(train(users(), sys.argv[1]).point.tobytes().hex())
            """
        )
    )
    path = os.pathsep.join(filter(None, sys.path))
    for saves in (1, 2, 0):
        result = subprocess.run(
            [sys.executable, script, tmp_path / "run", str(saves), path, os.getcwd()],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert result.returncode == (-signal.SIGKILL if saves else 0), result.stderr
    assert bytes.fromhex(result.stdout.strip()) == train(users()).point.tobytes()


def test_bad_settings(tmp_path):
    with pytest.raises(InvalidInputError, match="every"):
        Checkpoint(tmp_path / "run", every=0)
    with pytest.raises(InvalidInputError, match="cannot use"):
        Checkpoint(tmp_path / "no" / "such" / "folder")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "draw-00000.npz").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="damaged"):
        Checkpoint(tmp_path / "damaged")


def test_a_seed_goes_on_where_an_interrupted_run_stood(tmp_path):
    """Or the draws after a restart would be the first ones of the seed once more."""
    whole = SeededNoise(3)
    expected = [whole.discrete_gaussian(10.0, 5).tolist() for _ in range(3)]
    RecordedNoise(SeededNoise(3), tmp_path).discrete_gaussian(10.0, 5)
    again = RecordedNoise(SeededNoise(3), tmp_path)
    assert [again.discrete_gaussian(10.0, 5).tolist() for _ in range(3)] == expected


SCALE = 1.0


def scaled_loss(theta, z):
    return SCALE * ((theta - z) ** 2).sum()


def shifted_loss(theta, z, shift):
    return ((theta - z - shift) ** 2).sum()


def even_loss(theta, z, n=4):
    return (theta * z).sum() if n == 0 else odd_loss(theta, z, n - 1)


def odd_loss(theta, z, n):
    return even_loss(theta, z, n - 1)


class Weighted:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, theta, z):
        return self.weight * (theta * z).sum()


@pytest.mark.parametrize(
    ("loss", "other"),
    [
        (even_loss, odd_loss),  # they call each other
        (Weighted(1.0), Weighted(2.0)),
        (Weighted(1.0).__call__, Weighted(2.0).__call__),
        (jax.jit(lambda theta, z: (theta * z).sum()), jax.jit(lambda theta, z: (theta + z).sum())),
        (partial(shifted_loss, shift=1.0), partial(shifted_loss, shift=2.0)),
    ],
)
def test_a_run_with_another_function_is_another_run(tmp_path, loss, other):
    """The same noise on another loss would show the difference."""
    with Checkpoint(tmp_path / "run") as kept:
        kept.noise(SeededNoise(0), users(), JaxLoss(loss))
        kept.noise(SeededNoise(0), users(), JaxLoss(loss))
        with pytest.raises(InvalidInputError, match="other arguments"):
            kept.noise(SeededNoise(0), users(), JaxLoss(other))


def test_a_run_with_another_number_around_its_loss_is_another_run(tmp_path, monkeypatch):
    with Checkpoint(tmp_path / "run") as kept:
        kept.noise(SeededNoise(0), users(), JaxLoss(scaled_loss))
        monkeypatch.setitem(globals(), "SCALE", 2.0)
        with pytest.raises(InvalidInputError, match="other arguments"):
            kept.noise(SeededNoise(0), users(), JaxLoss(scaled_loss))


def test_a_folder_of_other_things_is_left_as_it_is(tmp_path):
    (tmp_path / "SENSITIVE").write_text("mine")
    with pytest.raises(InvalidInputError, match="not the folder of a run"):
        Checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["SENSITIVE"]
    assert (tmp_path / "SENSITIVE").read_text() == "mine"
