"""The yardstick of the benchmark is checked: a wrong opponent would flatter or slander the library."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.measure import ResumedRows
from benchmarks.peers import publish, run
from benchmarks.peers.means import ball_around_zero, best_ball, clipped_mean
from benchmarks.peers.objective import FLOOR, evaluate, fit_exactly, weighted_auc
from benchmarks.peers.opponent import Padded, Runs, descend, mean_loss
from benchmarks.peers.problem import Problem, Rows
from benchmarks.peers.publish import page, timings, with_ratios
from benchmarks.peers.tune import as_runs, gdp_mu
from userdp.privacy.gdp import mu_from_budget


def some_rows(n=40, d=3, seed=0):
    rng = np.random.default_rng(seed)
    items = rng.integers(1, 6, n)
    X = np.hstack([rng.normal(size=(items.sum(), d)), np.ones((items.sum(), 1))]).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=len(X)) > 0).astype(np.float32)
    return Rows(X, y, np.concatenate([[0], np.cumsum(items)]))


def plain_descent(rows, task, clip, step, rounds):
    theta = np.zeros(rows.X.shape[1])
    for _ in range(rounds):
        total = np.zeros_like(theta)
        for begin, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
            X, y = rows.X[begin:end], rows.y[begin:end]
            z = X @ theta
            p = 1 / (1 + np.exp(-z)) if task == "classification" else z
            gradient = X.T @ (p - y) / len(y)
            total += gradient * min(1, clip / max(np.linalg.norm(gradient), 1e-12))
        theta -= step * total / rows.n_users
    return theta


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_column_of_the_opponent_is_clipped_descent(task):
    rows = some_rows()
    clip, step = np.array([0.1, 1.0, 9.0], np.float32), np.array([1.0, 0.5, 0.1], np.float32)
    runs = Runs(clip, step, np.zeros(3, np.float32), np.zeros(3, np.uint32), np.zeros((4, 3), np.float32))
    theta = descend(task, Padded.of(rows), runs, 7)
    expected = [plain_descent(rows, task, *pair, 7) for pair in zip(clip, step, strict=True)]
    np.testing.assert_allclose(theta.T, expected, rtol=1e-3, atol=1e-5)


def test_the_noise_of_all_rounds_spends_the_budget_for_replacing_one_user():
    """Users without signal: theta is a sum of T noises, each of 2 C sqrt(T)/(n mu), times the step."""
    rows = some_rows()
    empty = Rows(np.zeros_like(rows.X), rows.y, rows.offsets)
    problem = Problem("none", "classification", rows.n_users, empty, empty, np.array([]), 0)
    K, T, C, step, epsilon = 2_000, 5, 0.5, 2.0, 1.0
    columns = (np.full(K, value) for value in (C, step, epsilon))
    theta = descend("classification", Padded.of(empty), as_runs(problem, "zero", *columns, np.arange(K)), T)
    expected = step * T * 2 * C / (rows.n_users * mu_from_budget(epsilon, 1e-6))
    assert theta.std() == pytest.approx(expected, rel=0.05)  # 8,000 normals: 6 standard errors


def test_mu_is_the_library_s():
    for epsilon in (0.1, 3.0):
        assert gdp_mu(epsilon) == pytest.approx(mu_from_budget(epsilon, 1e-6), rel=1e-6)


def test_losses_are_averaged_over_users():
    rows = some_rows()
    theta = np.array([[1.0], [0.0], [0.5], [-0.2]], np.float32)
    z = rows.X @ theta[:, 0]
    by_user = [
        np.mean(np.logaddexp(0, z[a:b]) - rows.y[a:b] * z[a:b])
        for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
    ]
    assert evaluate("classification", rows, z).loss == pytest.approx(np.mean(by_user), rel=1e-5)
    assert mean_loss("classification", Padded.of(rows), theta)[0] == pytest.approx(np.mean(by_user), rel=1e-5)


def test_auc_and_reference_agree_with_scikit_learn():
    rows = some_rows(n=300)
    score = np.round(rows.X[:, 0], 1)  # with ties
    expected = roc_auc_score(rows.y, score, sample_weight=rows.weights)
    assert weighted_auc(rows.y, score, rows.weights) == pytest.approx(expected, rel=1e-6)
    theta = fit_exactly("classification", rows, 1e-6)
    model = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-8, max_iter=1_000)
    model.fit(rows.X, rows.y, sample_weight=rows.weights)
    np.testing.assert_allclose(theta, model.coef_[0], atol=5e-3)


def test_the_oracle_of_means_knows_more_than_clipping_around_zero():
    x = np.random.default_rng(0).normal(10.0, 1.0, size=(500, 4))
    radius, error = best_ball(x, 0.2)
    assert error < ball_around_zero(x, 0.2)[1] / 3
    assert np.linalg.norm(clipped_mean(x, x.mean(axis=0), 100.0) - x.mean(axis=0)) < 1e-12
    assert 1 < radius < 5


def test_ratios_are_to_the_tuned_peer_and_floored():
    setting = {"table": "t", "task": "regression", "users": 5, "epsilon": 1.0}
    rows = [
        {**setting, "method": method, "tuned": method != "userdp_default", "excess_loss": excess}
        for method, excess in (("userdp_default", -1.0), ("tuned clipping", 0.01), ("opacus_peer", 0.001))
    ]
    with_ratios(rows)
    assert [row["ratio"] for row in rows] == [FLOOR / 0.01, 1.0, FLOOR / 0.01]


def peer_row(method, excess, **more):
    setting = {"table": "t", "task": "classification", "users": 500, "epsilon": 1.0, "n_mu": 118.4}
    return {**setting, "method": method, "tuned": True, "seeds": 5, "excess_loss": excess, **more}


def test_a_peer_s_own_code_is_compared_with_the_opponent_and_with_the_defaults(monkeypatch, tmp_path):
    monkeypatch.setattr(publish, "TIMINGS", tmp_path / "none.json")
    spent = {"seconds_per_round": 0.1, "peak_mb": 100}
    rows = [
        peer_row("tuned clipping", 0.01, excess_loss_std=0.001),
        peer_row("opacus_peer", 0.02, excess_loss_std=0.002, **spent),
        peer_row("userdp_default", 0.03, excess_loss_std=0.003, **spent),
    ]
    with_ratios(rows)
    text = "\n".join(page(rows, {"opacus_peer": [], "pfl_peer": ["t classification 500"]}))
    assert "* `pfl_peer`: t classification 500\n" in text
    assert "* `opacus_peer`: t" not in text
    assert "| opacus_peer | 1 | 2.00 |  |  | 2.00 |  | 1.50 (1) |" in text
    assert "| t, classification, 500 | 1.0 | 118 | 0.0300 | 3.00 | 3.00 |" in text  # among the losses


def test_losses_are_listed_by_the_ratio_to_the_better_start(monkeypatch, tmp_path):
    """A peer that gains by a base rate is not forgotten because it loses without one."""
    monkeypatch.setattr(publish, "TIMINGS", tmp_path / "none.json")
    spread = {"excess_loss_std": 0.001}
    rows = [
        peer_row("tuned clipping", 0.05, **spread),
        peer_row("tuned clipping, base rate", 0.01, **spread),
        peer_row("userdp_default", 0.03, **spread),
    ]
    with_ratios(rows)
    text = "\n".join(page(rows, {}))
    assert "1 of 1 settings cost more than 1.5 times" in text
    assert "| t, classification, 500 | 1.0 | 118 | 0.0300 | 3.00 | 0.60 |" in text
    assert "0.0300/0.0100 (3.00)" in text
    assert "| all | 1 | 0.60 | 3.00 | 3.00 |" in text


def test_times_and_memory_are_over_those_of_the_defaults():
    def timing(method, factor):
        times = dict.fromkeys(("seconds_per_round", "fit_seconds", "first_fit_seconds"), factor)
        memory = {"start_mb": 50.0, "peak_mb": 100.0 * factor}
        return peer_row(method, 0.0) | times | memory

    lines = timings([timing("userdp_default", 2.0), timing("opacus_peer", 5.0)])
    assert "| t | opacus_peer | 5e+03 (2.5) | 5 (2.5) | 5 (2.5) | 50 | 500 (2.5) |" in lines
    assert timings([]) == []


def test_an_interrupted_run_resumes_from_whole_rows(monkeypatch, tmp_path):
    def resumed(fresh=False):
        return ResumedRows(tmp_path / "peers.json", run.key, fresh)

    first = resumed()
    first.add(peer_row("opacus_peer", 0.02))
    first.add(peer_row("pfl_peer", 0.03))
    assert [row["method"] for row in resumed().rows.values()] == ["opacus_peer", "pfl_peer"]
    assert resumed(fresh=True).rows == {}
    monkeypatch.setattr(run, "load_tuned", lambda: [peer_row("tuned clipping", 0.01)])
    assert run.unmeasured(resumed())["opacus_peer"] == ["t classification 500"]  # at the other epsilons
    for epsilon in run.EPSILONS:
        first.add(peer_row("opacus_peer", 0.02) | {"epsilon": epsilon})
    assert run.unmeasured(resumed())["opacus_peer"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["peers.partial.json"]
    first.are_published()
    assert list(tmp_path.iterdir()) == []


def test_a_method_s_own_grid_is_searched_on_noise_of_its_own(monkeypatch):
    """The best point on the tuning seeds is the one whose predictions are right."""
    rows = some_rows()
    problem = Problem("t", "classification", rows.n_users, rows, rows, np.array([]), 0)
    right = np.where(rows.y > 0, 3.0, -3.0)

    def execute(name, data, jobs, seeds, first_seed):
        assert first_seed == 1_000
        return {"prediction": np.array([[right * (1 if job["clip"] == 0.1 else -1)] * seeds for job in jobs])}

    monkeypatch.setattr(run, "execute", execute)
    chosen = run.best_of_grid("diffprivlib_peer", problem, {"epsilon": 1.0, "clip": 0.0})
    assert (chosen["epsilon"], chosen["clip"]) == (1.0, 0.1)


def test_a_method_without_its_environment_is_left_out_with_a_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run, "BUILD", tmp_path)
    assert run.runnable(["userdp_default", "opacus_peer", "userdp.mean"]) == ["userdp_default"]
    assert "opacus_peer: no " in capsys.readouterr().out


def tuned_row(step):
    row = {"table": "t", "task": "classification", "users": 40, "epsilon": 1.0, "start": "zero"}
    return row | {"clip": 0.5, "step": step, "rounds": 12, "losses": [0.5, 0.6], "qualities": [0.7, 0.7]}


def test_rows_say_what_was_tuned_and_count_as_missing_once_it_is_tuned_again(monkeypatch, tmp_path):
    rows = some_rows()
    problem = Problem("t", "classification", rows.n_users, rows, rows, np.array([]), 0)
    monkeypatch.setattr(run, "load_tuned", lambda: [tuned_row(step=2.0)])
    monkeypatch.setattr(run, "reference_loss", lambda problem: 0.4)

    def execute(name, data, jobs, seeds, first_seed=0):
        prediction = np.zeros((len(jobs), seeds, len(rows.y)))
        return {"prediction": prediction, "seconds_per_round": np.ones(len(jobs)), "peak_mb": 1.0}

    monkeypatch.setattr(run, "execute", execute)
    results = ResumedRows(tmp_path / "peers.json", run.key)
    for method in ("opacus_peer", "diffprivlib_peer", "userdp_default"):
        for row in run.run_method(method, problem, [1.0]):
            results.add(row)
    for row in run.opponent_rows(problem):
        results.add(row)

    def recorded(method):
        row = results.rows["t", "classification", 40, 1.0, method]
        return [row.get(field) for field in ("clip", "step", "rounds", "intercept")]

    assert recorded("opacus_peer") == recorded(publish.OPPONENT) == [0.5, 2.0, 12, None]
    assert recorded("userdp_default") == [None] * 4
    first = run.DIFFPRIVLIB_GRID[0]
    assert recorded("diffprivlib_peer") == [first["clip"], first["step"], None, first["intercept"]]

    run.forget_other_settings(results, problem)
    assert len(results.rows) == 4
    monkeypatch.setattr(run, "load_tuned", lambda: [tuned_row(step=4.0)])
    run.forget_other_settings(results, problem)
    assert sorted(name[4] for name in results.rows) == [
        "diffprivlib_peer",
        publish.OPPONENT,
        "userdp_default",
    ]


def test_committed_rows_are_at_the_committed_setting():
    starts = {"tuned clipping": "zero", "tuned clipping, base rate": "base rate"}
    takers = {name for name, method in run.METHODS.items() if method.tuned and not method.grid}
    starts |= dict.fromkeys(takers, "zero")
    tuned = {run.key(row | {"method": row["start"]}): row for row in run.load_tuned()}
    checked = 0
    for row in json.loads(run.PUBLISHED.read_text())["rows"]:
        if row["method"] in starts:
            expected = tuned[run.key(row | {"method": starts[row["method"]]})]
            assert [row[field] for field in run.SETTING] == [expected[field] for field in run.SETTING]
            checked += 1
    assert checked >= len(tuned)


def test_the_committed_page_is_made_from_the_committed_rows():
    rows = json.loads(run.PUBLISHED.read_text())["rows"]
    measured = SimpleNamespace(rows={run.key(row): row for row in rows})
    text = "\n".join(page(rows, run.unmeasured(measured)))
    assert (run.RESULTS / "peers.md").read_text().startswith(text.rstrip())
