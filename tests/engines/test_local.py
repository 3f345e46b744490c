"""Per-user gradients: right, and bit for bit a function of one user."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax

from userdp.data import Users
from userdp.engines.local import local_oracle, without_ridge
from userdp.errors import InvalidInputError
from userdp.problems import (
    Distance,
    Hinge,
    JaxLoss,
    Linear,
    Logistic,
    Multinomial,
    Regularized,
    SampledGLM,
    SampledSmoothing,
    SmoothedGLM,
    Squared,
    SquaredDistance,
)
from userdp.problems.ball import BallMarginal, sample_ball

ITEMS = [3, 9, 3, 9]
D, K = 3, 3
KEY = jax.random.key(5)


def make_users(items=ITEMS, d=D, seed=0, targets=True):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(sum(items), d)).astype(np.float32).astype(float)
    y = rng.integers(0, 2, size=len(rows)) if targets else None
    return Users.from_rows(rows, np.repeat(np.arange(len(items)), items), y)


def gradients(loss, users, theta, *, key=KEY, dtype=np.float32, **options):
    """Rows in the order of the users."""
    oracle = local_oracle(loss, users, dtype=dtype, dimension=len(theta), **options)
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(oracle.user_gradients)(oracle.data, jnp.asarray(theta), key))
    order = np.concatenate([block.positions[: block.n_users] for block in oracle.data])
    rows = np.empty_like(found)
    rows[order] = found
    return rows


def cross_entropy(theta, item):
    x, y = item
    return jnp.logaddexp(0.0, theta @ x) - y * (theta @ x)


def item_key(user, item):
    return jax.random.fold_in(jax.random.fold_in(KEY, user), item)


def logistic(theta, x, y):
    return (expit(x @ theta) - y) * x


def hinge(theta, x, y):
    sign = 2 * y - 1
    return -sign * x if sign * (x @ theta) < 1 else 0 * x


def multinomial(theta, x, y):
    residual = softmax(theta.reshape(K, D) @ x) - np.eye(K)[int(y)]
    return np.outer(residual, x).ravel()


def along_a_draw(theta, x, y, user, item):
    B = float(BallMarginal(D).sample(item_key(user, item), (), jnp.float64))
    sign, p = 2 * y - 1, x @ theta + 0.3 * np.linalg.norm(x) * B
    return -sign * x if sign * p < 1 else 0 * x


def at_a_draw(theta, x, y, user, item):
    return logistic(theta + np.asarray(sample_ball(item_key(user, item), D, 0.3, jnp.float64)), x, y)


RIGHT = {
    "glm": (Logistic(), lambda theta, x, y, *_: logistic(theta, x, y)),
    "kink": (Hinge(), lambda theta, x, y, *_: hinge(theta, x, y)),
    "sampled glm": (SampledGLM(Hinge(), 0.3, D), along_a_draw),
    "sampled": (SampledSmoothing(Logistic(), 0.3), at_a_draw),
    "multinomial": (Multinomial(K), lambda theta, x, y, *_: multinomial(theta, x, y)),
    "any function": (JaxLoss(cross_entropy), lambda theta, x, y, *_: logistic(theta, x, y)),
    "ridge is split off": (Regularized(Logistic(), 2.0), lambda theta, x, y, *_: logistic(theta, x, y)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_gradients_equal_a_double_loop(name):
    loss, item_gradient = RIGHT[name]
    users = make_users()
    theta = np.random.default_rng(1).normal(size=K * D if name == "multinomial" else D)
    with jax.enable_x64(True):
        expected = []
        for j, items in enumerate(users.items_per_user):
            total = np.zeros(len(theta))
            for k in range(items):
                row = users.offsets[j] + k
                total += item_gradient(theta, users.rows[row], users.targets[row], j, k)
            expected.append(total / items)
    np.testing.assert_allclose(
        gradients(loss, users, theta, dtype=np.float64), expected, rtol=1e-10, atol=1e-12
    )


def test_smoothing_in_closed_form_is_the_average_over_draws():
    """One user with 3,000 copies of an item: the sampled gradient is the average over 3,000 draws."""
    x, theta = np.array([0.5, -1.0, 0.3]), np.array([1.0, -0.2, 0.1])
    users = Users.from_rows(np.tile(x, (3_000, 1)), np.zeros(3_000, int), np.ones(3_000))
    sampled = gradients(SampledGLM(Hinge(), 1.5, D), users, theta)[0]
    exact = gradients(SmoothedGLM(Hinge(), 1.5, D), users, theta)[0]
    assert 0.2 < np.linalg.norm(exact) / np.linalg.norm(x) < 0.8
    assert np.linalg.norm(sampled - exact) / np.linalg.norm(x) < 5 * 0.5 / np.sqrt(3_000)


@pytest.mark.parametrize("loss", [Linear(), SquaredDistance(), Distance()])
def test_losses_of_vectors_take_rows_without_targets(loss):
    users = make_users(targets=False)
    theta = np.array([0.3, -0.2, 0.5])
    rows = [users.rows[a:b] for a, b in zip(users.offsets[:-1], users.offsets[1:], strict=True)]
    expected = [
        {
            "Linear": lambda z: z,
            "SquaredDistance": lambda z: theta - z,
            "Distance": lambda z: (theta - z) / np.linalg.norm(theta - z, axis=1, keepdims=True),
        }[type(loss).__name__](z).mean(axis=0)
        for z in rows
    ]
    np.testing.assert_allclose(gradients(loss, users, theta), expected, rtol=1e-4, atol=1e-5)


BITWISE = {
    "glm": Logistic(),
    "smoothed": SmoothedGLM(Hinge(), 0.3, 10),
    "any function": JaxLoss(cross_entropy),
}


@pytest.mark.parametrize("name", BITWISE)
def test_a_user_s_gradient_is_the_same_alone_in_any_company_and_in_any_order(name):
    """These losses and widths differ in the last bits if the compiler sees how many users there are."""
    loss = BITWISE[name]
    items = [3, 21, 21, 3, 1, 21, 3, 21]
    users = make_users(items, d=10)
    theta = np.random.default_rng(1).normal(size=10)
    together = gradients(loss, users, theta)
    for j in (0, 1):
        alone = gradients(loss, users.take(np.array([j])), theta)[0]
        assert alone.tobytes() == together[j].tobytes()
    order = np.array([5, 3, 7, 0, 1, 2, 6, 4])
    assert gradients(loss, users.take(order), theta).tobytes() == together[order].tobytes()


@pytest.mark.parametrize("name", ["glm", "smoothed"])
def test_small_users_are_the_same_in_every_lane(name):
    rng = np.random.default_rng(3)
    users = make_users(rng.integers(1, 12, 100), d=10)
    theta = rng.normal(size=10)
    together = gradients(BITWISE[name], users, theta)
    for j in (0, 57, 99):
        alone = gradients(BITWISE[name], users.take(np.array([j])), theta)[0]
        assert alone.tobytes() == together[j].tobytes()
    for _ in range(5):
        order = rng.permutation(100)[: rng.integers(20, 101)]
        assert gradients(BITWISE[name], users.take(order), theta).tobytes() == together[order].tobytes()


def test_one_user_s_items_do_not_shift_another_user_s_random_stream():
    loss = SampledSmoothing(SquaredDistance(), 0.3)
    theta = np.array([0.3, -0.2, 0.5])
    users = make_users([3, 3, 3, 5, 3], targets=False)
    before = gradients(loss, users, theta)
    alone = gradients(loss, users.take(np.array([0])), theta)
    assert alone[0].tobytes() == before[0].tobytes()
    for replacement in (5, 1):  # to another block, to a block of its own before the others
        items = [replacement, 3, 3, 5, 3]
        rows = np.concatenate([np.ones((replacement, D)), users.rows[3:]])
        changed = Users.from_rows(rows, np.repeat(np.arange(5), items))
        assert gradients(loss, changed, theta)[1:].tobytes() == before[1:].tobytes()


def test_null_users_are_nan_and_nobody_else_is():
    users = make_users([2, 3, 3, 3, 4])
    users.rows[2, 0] = np.nan
    users.rows[5, 1] = 1e300  # an infinity in float32
    found = gradients(Logistic(), users, np.ones(D), min_items=3)
    assert np.isnan(found[:2]).all()
    assert not np.isfinite(found[2]).all()
    assert np.isfinite(found[3:]).all()


def test_padding_does_not_leak_a_gradient_that_is_not_finite():
    """log|x| has no gradient at the zeros that pad a block."""
    loss = JaxLoss(lambda theta, z: jnp.sum(theta * jnp.log(jnp.abs(z))))
    users = make_users([9], targets=False)
    expected = np.log(np.abs(users.rows)).mean(axis=0)
    np.testing.assert_allclose(gradients(loss, users, np.zeros(D))[0], expected, rtol=1e-4)


def test_ridge_penalties_add_up_and_come_out_of_a_smoothed_loss():
    assert without_ridge(Regularized(Regularized(Logistic(), 1.0), 0.5)) == (Logistic(), 1.5)
    smooth = SampledSmoothing(Regularized(Logistic(), 2.0), 0.3)
    assert without_ridge(smooth) == (SampledSmoothing(Logistic(), 0.3), 2.0)
    assert local_oracle(Regularized(Multinomial(K), 2.0), make_users()).dimension == K * D
    assert local_oracle(SampledSmoothing(Multinomial(K), 2.0), make_users()).dimension == K * D


@pytest.mark.parametrize(
    "loss", [Logistic(), SampledGLM(Hinge(), 0.3, D), Multinomial(K), Regularized(Squared(), 1.0)]
)
def test_a_loss_of_labelled_items_needs_targets(loss):
    with pytest.raises(InvalidInputError, match="target"):
        local_oracle(loss, make_users(targets=False))


def test_a_loss_that_is_none():
    with pytest.raises(InvalidInputError, match="JaxLoss"):
        local_oracle(lambda theta, item: 0.0, make_users())
