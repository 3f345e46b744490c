"""Contents for the report's tests: an ordinary release, a hostile one, and a long model."""

import dataclasses

from userdp.privacy import Budget, PrivacyStatement, Spend
from userdp.privacy.accounting import FailureEvent, GaussianEvent, PureEvent
from userdp.report import CurvePoint, ErrorCurve, Released, ReportContent

BUDGET = Budget(epsilon=1.0, delta=1e-6, unit="aircraft")
# Gates and mean of a private mean over 4,037 aircraft: mu of 0.055 and 0.217, together 0.224.
EVENTS = (
    PureEvent("radius", epsilon=0.0892),
    GaussianEvent("concentration gate", sensitivity=1024, scale=1024 / 0.0547),
    FailureEvent("gate passes in error", delta=4.21e-8),
    GaussianEvent("mean", sensitivity=1e6, scale=1e6 / 0.2166),
)
CERTIFIED = PrivacyStatement.certify(BUDGET, EVENTS, n_users=4037, seeded=False)
SEEDED = dataclasses.replace(CERTIFIED, seeded=True)
CLAIMED = PrivacyStatement.claim(
    BUDGET,
    (Spend("AboveThreshold", epsilon=0.5), Spend("means", epsilon=0.5, delta=1e-6)),
    n_users=4037,
    seeded=False,
    assumptions=("the paper's constants, which are not proven; at least 609 users",),
)

CURVES = tuple(
    ErrorCurve(
        epsilon,
        tuple(
            CurvePoint(n, 740 / (n * epsilon), here=epsilon == 1.0 and n == 4037)
            for n in (1000, 2000, 4037, 8000, 16_000, 32_000, 64_000, 128_000)
        ),
    )
    for epsilon in (0.5, 1.0, 2.0)
)

MEAN = ReportContent(
    title="Flights out of New York City, 2013",
    kind="mean",
    released_at="2025-03-14 09:26 UTC",
    released=(
        Released("dep_delay", 11.8531, 0.1834),
        Released("arr_delay", 5.9217, 0.1834),
        Released("hour", 12.8514, 0.1834),
        Released("plane_age", 12.3790, 0.1834),
    ),
    statement=CERTIFIED,
    version="0.1.0",
    facts=(("released", "4 column means"), ("users", "4,037 aircraft"), ("mean", "concentrated, certified")),
    error_curves=CURVES,
    error_label="noise (standard deviation)",
)

HOSTILE_NAMES = (
    "<script>document.title='owned'</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}</style></script><!--",
    "long_" * 400,
    "\N{RIGHT-TO-LEFT OVERRIDE}evil\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET}",
    "العمر بالسنوات",
    "line\nbreak\tand \x00 and \x1b[31m",
    "&amp; &lt;b&gt;",
    "",
)
HOSTILE = ReportContent(
    title="<script>alert('title')</script> & \"friends\"",
    kind="model",
    released_at="<b>today</b>",
    released=tuple(Released(name, (-1) ** k * 0.1 * k, 0.05) for k, name in enumerate(HOSTILE_NAMES)),
    statement=dataclasses.replace(
        SEEDED,
        certified=False,
        unit="<i>person</i>",
        spent=(Spend("<u>gate</u>", epsilon=0.7), Spend("x" * 300, mu=0.2, delta=1e-7)),
        assumptions=("<em>nothing</em> links rows",),
    ),
    version="<0>",
    facts=(("<dt>", "</dd><script>alert(2)</script>"), ("path", "/very" * 200)),
    error_curves=CURVES,
    error_label="<error>",
    warnings=("<h1>halted</h1>",),
)

MODEL = ReportContent(
    title="Will it be late?",
    kind="model",
    released_at="2025-03-14",
    released=tuple(Released(f"feature {k}", ((7 * k) % 41 - 20) / 10) for k in range(60)),
    statement=CERTIFIED,
    version="0.1.0",
)
