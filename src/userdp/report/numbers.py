"""Numbers as people read them. What bounds a risk is rounded up, never down."""

import math

# Two-sided 95% point of the standard normal distribution.
NORMAL_95 = 1.959964
_MINUS = "\N{MINUS SIGN}"


def plain(value: float, digits: int = 4) -> str:
    """Write a number with a few significant digits, thousands marked.

    Examples
    --------
    >>> plain(1234567), plain(0.25), plain(-3e-9)
    ('1,234,567', '0.25', '−3e-09')
    """
    if value == int(value) and abs(value) < 1e9:
        text = f"{int(value):,}"
    elif 1e-4 <= abs(value) < 1e6:
        decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
        text = f"{value:,.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{value:.{digits}g}"
    return text.replace("-", _MINUS, 1) if text.startswith("-") else text


def measured(value: float, noise_std: float | None) -> str:
    """Write a noisy number to two digits of its noise: more would be digits of noise.

    Examples
    --------
    >>> measured(11.853172, 0.1834), measured(11.853172, None), measured(-1234.5, 40.0)
    ('11.85', '11.85', '−1,234')
    """
    if not noise_std:
        return plain(value)
    decimals = max(1 - math.floor(math.log10(noise_std)), 0)
    if decimals > 6 or abs(value) >= 1e9:
        return plain(value, digits=6)
    text = f"{value:,.{decimals}f}"
    return text.replace("-", _MINUS, 1)


def rounded_up(value: float, digits: int = 3) -> str:
    """Round a positive bound up to a few significant digits.

    Examples
    --------
    >>> rounded_up(math.e), rounded_up(math.exp(10)), rounded_up(1.0)
    ('2.72', '22,100', '1')
    """
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return plain(math.ceil(value / step - 1e-9) * step, digits)


def percent_up(probability: float) -> str:
    """Round a probability up to a tenth of a percent.

    Examples
    --------
    >>> percent_up(0.0731), percent_up(0.5), percent_up(1.0)
    ('7.4%', '50%', '100%')
    """
    return f"{math.ceil(probability * 1000 - 1e-9) / 10:.1f}".removesuffix(".0") + "%"


def share(part: float) -> str:
    """Write a share of a whole, in percent.

    Examples
    --------
    >>> share(0.94), share(0.0004), share(1.0)
    ('94%', 'less than 0.1%', '100%')
    """
    if 0 < part < 0.001:
        return "less than 0.1%"
    return f"{part:.1%}".replace(".0%", "%")


def one_in(probability: float) -> str:
    """Write a small probability as a chance, rounded up.

    Examples
    --------
    >>> one_in(1e-6), one_in(4.21e-8), one_in(0.3), one_in(0.0)
    ('1 in 1,000,000', '1 in 23,700,000', '30%', 'none')
    """
    if probability <= 0:
        return "none"
    if probability > 1e-3:
        return percent_up(probability)
    times = 1 / probability
    step = 10.0 ** (math.floor(math.log10(times) + 1e-12) - 2)
    floored = math.floor(times / step + 1e-9) * step
    return f"1 in {floored:,.0f}" if floored < 1e13 else f"1 in {floored:.3g}"


def odds(epsilon: float) -> str:
    """Write e^epsilon, rounded up.

    Examples
    --------
    >>> odds(1.0), odds(0.1), odds(200.0)
    ('2.72', '1.11', 'e^200')
    """
    return rounded_up(math.exp(epsilon)) if epsilon < 20 else f"e^{epsilon:g}"
