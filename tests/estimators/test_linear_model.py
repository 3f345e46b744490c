"""Model files: what is saved comes back; what is damaged is refused in one sentence."""

import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import userdp
from tests.estimators.tables import table
from userdp.errors import InvalidInputError
from userdp.estimators.linear_model import VERSION, LinearModel, probabilities_of


def model(**changes):
    fields = {
        "kind": "LogisticRegression",
        "feature_names": ("age", "dose"),
        "coefficients": np.array([[1.5, -1 / 3]]),
        "intercepts": np.array([0.1]),
        "low": np.array([-4.0, -np.inf]),
        "high": np.array([4.0, np.inf]),
        "scale": np.array([0.5, np.inf]),
        "noise_std": np.array([[0.1, 0.0]]),
        "classes": ("no", "yes"),
        "privacy": {"epsilon": 1.0},
        "details": {"rounds": 3},
    }
    return LinearModel(**{**fields, **changes})


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.json"
    model().save(path)
    return path


def test_round_trip(saved):
    loaded, X = LinearModel.load(saved), np.array([[1.0, 2.0], [100.0, -3.0]])
    for name in ("coefficients", "intercepts", "low", "high", "scale", "noise_std"):
        assert getattr(loaded, name).tobytes() == getattr(model(), name).tobytes()
    assert loaded.classes == ("no", "yes")
    assert loaded.decision(X).tobytes() == model().decision(X).tobytes()
    assert loaded.probabilities(X).tobytes() == probabilities_of(loaded.decision(X)).tobytes()


@pytest.mark.parametrize("estimator", [userdp.LogisticRegression, userdp.LinearRegression])
def test_a_fitted_model_predicts_the_same_from_its_file(estimator, tmp_path):
    t = table()
    fitted = estimator(3.0, rounds=3, random_state=0).fit(t.X, t.labels, groups=t.groups)
    fitted.to_model().save(tmp_path / "model.json")
    loaded = LinearModel.load(tmp_path / "model.json")
    if loaded.classes is None:
        assert loaded.decision(t.X)[:, 0].tobytes() == fitted.predict(t.X).tobytes()
    else:
        assert loaded.classes == (0, 1)
        assert loaded.probabilities(t.X).tobytes() == fitted.predict_proba(t.X).tobytes()
    assert loaded.privacy["n_users"] == fitted.n_users_
    assert loaded.kind == estimator.__name__


def test_files_are_plain_json_and_need_no_pickle(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "pickle", None)
    assert LinearModel.load(saved).kind == "LogisticRegression"
    assert json.loads(saved.read_text())["high"] == [4.0, "inf"]


def test_saving_leaves_no_half_written_file(tmp_path, saved):
    with pytest.raises(InvalidInputError, match="cannot write"):
        model().save(tmp_path / "missing" / "model.json")
    with pytest.raises(TypeError):
        model(details={"rounds": object()}).save(saved)
    assert LinearModel.load(saved).details == {"rounds": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def edited(path, **changes):
    record = json.loads(path.read_text())
    record.update(changes)
    path.write_text(json.dumps(record))
    return path


def test_a_file_of_format_1(saved):
    """It has no scale: every feature was let in eight of them to either side."""
    record = json.loads(saved.read_text())
    del record["scale"]
    saved.write_text(json.dumps(record | {"version": 1}))
    assert LinearModel.load(saved).scale.tolist() == [0.5, np.inf]
    with pytest.raises(InvalidInputError, match="damaged"):
        LinearModel.load(edited(saved, version=2))


@pytest.mark.parametrize("version", [VERSION + 1, 10**6])
def test_a_newer_file(saved, version):
    with pytest.raises(InvalidInputError, match="install a newer userdp"):
        LinearModel.load(edited(saved, version=version))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": True},
        {"version": "1"},
        {"version": None},
        {"coefficients": [[1.0]]},
        {"coefficients": [1.0, 2.0]},
        {"coefficients": [[1.0, "nan"]]},
        {"coefficients": [[1.0, None]]},
        {"coefficients": [[1.0, 10**400]]},
        {"coefficients": [[1.0, [2.0]]]},
        {"coefficients": "text"},
        {"intercepts": ["inf"]},
        {"intercepts": [0.0, 0.0]},
        {"low": ["nan", 0.0]},
        {"low": [5.0, 0.0]},
        {"scale": ["nan", 1.0]},
        {"scale": [-1.0, 1.0]},
        {"scale": [1.0]},
        {"noise_std": [[0.1]]},
        {"feature_names": ["age"]},
        {"feature_names": "ab"},
        {"feature_names": [1, 2]},
        {"classes": ["no"]},
        {"classes": ["no", "yes", "maybe"]},
        {"classes": [["no"], ["yes"]]},
        {"classes": 2},
        {"kind": 3},
        {"privacy": []},
        {"details": None},
    ],
    ids=str,
)
def test_fields_that_do_not_fit(saved, changes):
    with pytest.raises(InvalidInputError, match="damaged"):
        LinearModel.load(edited(saved, **changes))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"format": ' + b"9" * 5_000 + b"}"]
)
def test_not_a_model_file(tmp_path, content):
    path = tmp_path / "model.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="not a userdp model"):
        LinearModel.load(path)


def test_no_file(tmp_path):
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(InvalidInputError, match="cannot read"):
            LinearModel.load(path)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.json"
    model().save(path)
    return path, path.read_bytes()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_never_ends_in_a_traceback(content, data):
    path, original = content
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    path.write_bytes(bytes(damaged))
    try:
        loaded = LinearModel.load(path)
    except InvalidInputError:
        return
    assert loaded.decision(np.zeros((1, 2))).shape == (1, 1)


def test_rows_of_another_width_are_refused():
    """NumPy would repeat one column for all features."""
    with pytest.raises(InvalidInputError, match="columns, those of feature_names"):
        model().decision(np.zeros((4, 1)))


def test_only_logistic_models_have_probabilities():
    with pytest.raises(InvalidInputError, match="no probabilities"):
        model(kind="LinearSVC").probabilities(np.zeros((4, 2)))
