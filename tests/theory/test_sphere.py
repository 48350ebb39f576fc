"""The closed forms of the sphere against quadrature, derivatives, Monte Carlo and 60-digit references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar

from probssl.errors import InputError
from probssl.metrics import alignment, uniformity
from probssl.theory import sphere
from probssl.theory._bessel import log_moment, resultant, resultant_gap
from probssl.theory.sphere_samples import sample_uniform, sample_vmf

# dim, κ, log C_d(κ), g(κ) − κ, A_d(κ), 1 − A_d(κ), KL(vMF ‖ uniform), with g = log ₀F₁(; d/2; κ²/4),
# C_d = e^{−g} / |S^{d−1}| and A_d = (κ/d) ₀F₁(; d/2 + 1; κ²/4) / ₀F₁(; d/2; κ²/4). From mpmath's hyp0f1 at 60 digits,
# equal at 100 digits and, up to dim 128, equal to the form with its besseli.
REFERENCES = """
2 0 -1.8378770664093455 0.0 0.0 1.0 0.0
2 1e-6 -1.8378770664095955 -9.9999975e-7 4.999999999999375e-7 0.9999995 2.4999999999995313e-13
2 1 -2.0737914249165241 -0.76408564149282135 0.44638996589653451 0.55361003410346549 0.21047560738935586
2 10 -9.780849149528041 -2.0570279168813044 0.94859982595484596 0.051400174045154041 1.543026176429764
2 50 -48.96545256828115 -2.8724244981281954 0.98994896737849775 0.010051032621502247 2.369872867053083
2 1000 -997.46518595627881 -4.3726911101305353 0.99949987487480428 0.0005001251251957198 3.8725659849348155
2 1e6 -999994.01118337922 -7.8266936871867473 0.999999499999875 5.00000125000125e-7 7.3266935621866223
3 0 -2.5310242469692908 0.0 0.0 1.0 0.0
3 1e-6 -2.5310242469694575 -9.9999983333333333e-7 3.3333333333331111e-7 0.99999966666666667 1.6666666666665e-13
3 1 -2.6924636085404864 -0.83856063842880437 0.3130352854993313 0.6869647145006687 0.15159592392813567
3 10 -9.5352919713541462 -2.9957322756151446 0.90000000412230725 0.099999995877692747 1.9957323168382172
3 50 -47.925854060981199 -4.6051701859880914 0.98 0.02 3.6051701859880914
3 1000 -994.93012178742721 -7.6009024595420824 0.999 0.001 6.6009024595420824
3 1e6 -999988.02236650845 -14.508657738524219 0.999999 1.0e-6 13.508657738524219
10 0 -3.2387427794590006 0.0 0.0 1.0 0.0
10 1e-6 -3.2387427794590506 -9.9999995e-7 9.9999999999999167e-8 0.9999999 4.9999999999999375e-14
10 1 -3.2885364065453559 -0.95020637291364466 0.099178382399712559 0.90082161760028744 0.049384755313357217
10 10 -7.0909571089080953 -6.1477856705509053 0.6336683916233054 0.3663316083766946 2.4844695867839593
10 50 -40.50732355537737 -12.731419224081631 0.91320959987374054 0.086790400126259463 8.3918992177686577
10 1000 -977.177669112346 -26.061073667112997 0.99550788285570415 0.0044921171442958491 21.568956522817148
10 1e6 -999946.100641413 -57.138101366460117 0.99999550000787501 4.499992124992125e-6 52.638109241467992
128 0 127.05345652435997 0.0 0.0 1.0 0.0
128 1e-6 127.05345652435997 -9.9999999609375e-7 7.8124999999999995e-9 0.9999999921875 3.9062499999999996e-15
128 1 127.04955039172601 -0.99609386736603893 0.0078120305543653793 0.99218796944563462 0.0039058979204043045
128 10 126.66399611506202 -9.6105395907020497 0.077660976382128364 0.92233902361787164 0.38714935452333329
128 50 117.90685868532626 -40.853402160966294 0.34476223411006175 0.65523776588993825 8.0915138664693817
128 1000 -676.07802280030577 -196.86852067533426 0.93848438951094097 0.061515610489059028 135.35291018627523
128 1e6 -999239.41828891027 -633.52825456536953 0.99993650198437698 6.3498015623017591e-5 570.03023894235194
10000 0 31858.28373925779 0.0 0.0 1.0 0.0
10000 1e-6 31858.28373925779 -9.9999999995e-7 1.0e-10 0.9999999999 5.0e-17
10000 1 31858.28368925779 -0.99995000000024995 9.999999900019998e-5 0.9999000000009998 4.9999999250149987e-5
10000 10 31858.278739260289 -9.9950000024994968 0.0009999990002019588 0.99900000099979804 0.0049999925015163567
10000 50 31858.158740819925 -49.875001562135513 0.0049998750312408626 0.99500012496875914 0.12499531369755596
10000 1000 31808.53041899767 -950.24667973988045 0.099019702113027223 0.90098029788697278 49.266381852907668
10000 1e6 -940105.32637836935 -28036.389882372861 0.99501299493480817 0.0049870050651918349 23049.384817181026
100000 10 433747.23533192126 -9.9995000000024999 9.999999900002002e-5 0.99990000000099998 0.00049999999250015016
100000 9000 433343.85859970667 -8596.6227677854129 0.089282589844825014 0.91071741015517499 400.16607638883803
100000 1e4 433249.70306185967 -9502.4672299384204 0.099019532447944249 0.90098046755205575 492.66255441786286
"""
ROWS = [(int(dim), *map(float, rest)) for dim, *rest in map(str.split, REFERENCES.strip().splitlines())]

DIMS = [2, 3, 10, 128, 10_000]
KAPPAS = [1e-6, 0.3, 1.0, 10.0, 50.0, 1e3, 1e6]


def over_cosines(dim: int, weight, value) -> float:
    """E of value(t) under a density ∝ weight(t), t the cosine with the mean: plain adaptive quadrature."""

    def integral(f):
        at = (lambda a: f(math.cos(a)) * math.sin(a) ** (dim - 2), 0, math.pi)
        return quad(*at, epsabs=0, epsrel=1e-12, limit=200)[0]

    return integral(lambda t: weight(t) * value(t)) / integral(weight)


@pytest.mark.parametrize(("dim", "kappa", "log_c", "scaled", "mean", "gap", "kl"), ROWS)
def test_constants_against_sixty_digits(dim, kappa, log_c, scaled, mean, gap, kl):
    assert sphere.log_vmf_normaliser(dim, kappa) == pytest.approx(log_c, rel=3e-15, abs=0)
    assert sphere.mean_resultant_length(dim, kappa) == pytest.approx(mean, rel=3e-15, abs=0)
    assert sphere.expected_alignment(dim, kappa) == pytest.approx(2 * gap, rel=4e-14, abs=0)
    assert sphere.vmf_kl_from_uniform(dim, kappa) == pytest.approx(kl, rel=2e-14, abs=0)
    assert sphere.vmf_entropy(dim, kappa) == pytest.approx(-log_c - kappa * mean, rel=1e-13, abs=1e-9)
    if kappa > 0:
        assert sphere.cosine_log_normaliser(dim, 1 / kappa) == pytest.approx(scaled, rel=3e-15, abs=0)
        assert sphere.expected_uniformity(dim, kappa / 2) == pytest.approx(scaled, rel=3e-15, abs=0)


@pytest.mark.parametrize("dim", [*DIMS, 100_000])
def test_the_two_regimes_meet(dim):
    # at κ = 40 √(d/2) the series hands over to the expansion; g and A must go on as if nothing had happened
    edge = 40 * math.sqrt(dim / 2)
    left, right = np.array(edge), np.array(np.nextafter(edge, math.inf))
    assert log_moment(dim, right) == pytest.approx(float(log_moment(dim, left)), rel=3e-15)
    assert resultant(dim, right) == pytest.approx(float(resultant(dim, left)), rel=3e-15)
    assert resultant_gap(dim, right) == pytest.approx(float(resultant_gap(dim, left)), rel=5e-14)


def test_closed_forms_of_one_and_three_dimensions():
    k = np.array([1e-3, 0.5, 3.0, 20.0, 28.0, 29.0, 300.0])
    np.testing.assert_allclose(log_moment(1, k), np.logaddexp(k, -k) - np.log(2), rtol=1e-9)  # log cosh
    np.testing.assert_allclose(resultant(1, k), np.tanh(k), rtol=1e-14)
    np.testing.assert_allclose(resultant(3, k[1:]), 1 / np.tanh(k[1:]) - 1 / k[1:], rtol=1e-14)


@pytest.mark.parametrize("kappa", [1e12, 1e100, 1e300])
def test_beyond_all_need(kappa):
    assert sphere.expected_alignment(10, kappa) == pytest.approx(9 / kappa)
    assert sphere.vmf_kl_from_uniform(3, kappa) == pytest.approx(math.log(2 * kappa) - 1)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.5), (2, 3.0), (3, 5.0), (10, 10.0), (10, 60.0), (128, 40.0)])
def test_constants_against_quadrature(dim, kappa):
    moment = over_cosines(dim, lambda t: 1.0, lambda t: math.exp(kappa * (t - 1)))
    assert sphere.log_vmf_normaliser(dim, kappa) == pytest.approx(
        -sphere.log_sphere_area(dim) - math.log(moment) - kappa, rel=1e-11
    )
    mean = over_cosines(dim, lambda t: math.exp(kappa * (t - 1)), lambda t: t)
    assert sphere.mean_resultant_length(dim, kappa) == pytest.approx(mean, rel=1e-10, abs=1e-13)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("kappa", KAPPAS)
def test_the_mean_is_minus_the_derivative_of_the_log_normaliser(dim, kappa):
    # A' = 1 − A² − (d − 1) A/κ, the Riccati equation of the Bessel ratio, by a difference quotient
    step = 1e-4 * kappa
    up, down = (sphere.mean_resultant_length(dim, kappa + s) for s in (step, -step))
    mean = sphere.mean_resultant_length(dim, kappa)
    slope = (up - down) / (2 * step)
    expected = 1 - mean**2 - (dim - 1) * mean / kappa
    assert slope == pytest.approx(expected, rel=1e-6, abs=1e-9)
    area = [float(log_moment(dim, np.array(kappa + s))) for s in (step, -step)]
    assert (area[0] - area[1]) / (2 * step) == pytest.approx(mean, rel=1e-6)


def test_areas():
    assert math.exp(sphere.log_sphere_area(2)) == pytest.approx(2 * math.pi)
    assert math.exp(sphere.log_sphere_area(3)) == pytest.approx(4 * math.pi)
    assert sphere.log_sphere_area(10) == pytest.approx(3.238742779459, abs=1e-12)


def test_reference_values_of_ten_dimensions():
    assert sphere.vmf_kl_from_uniform(10, 10) == pytest.approx(2.484469586784, abs=1e-12)
    assert sphere.vmf_kl_from_uniform(10, 1) == pytest.approx(0.049384755313, abs=1e-12)
    assert sphere.mean_resultant_length(10, 1) == pytest.approx(0.0991784, abs=1e-7)
    assert sphere.mean_resultant_length(10, 10) == pytest.approx(0.6336684, abs=1e-7)
    assert sphere.vmf_entropy(10, 10) == pytest.approx(0.754273192675, abs=1e-12)
    # the inverse constant, which is far from the area: one conditional is not uniform because the marginal is
    assert math.exp(-sphere.log_vmf_normaliser(10, 10)) == pytest.approx(1201.0568, abs=1e-4)
    assert math.exp(-sphere.log_sphere_area(10)) == pytest.approx(0.039213, abs=1e-6)


@pytest.mark.parametrize("dim", DIMS)
def test_entropy_and_divergence_at_zero_and_beside_it(dim):
    assert sphere.vmf_kl_from_uniform(dim, 0) == 0.0
    assert sphere.vmf_entropy(dim, 0) == sphere.log_sphere_area(dim)
    assert sphere.vmf_kl_from_uniform(dim, 1e-6) == pytest.approx(1e-12 / (2 * dim), rel=1e-12, abs=0)
    values = [sphere.vmf_kl_from_uniform(dim, k) for k in (0.0, *KAPPAS)]
    assert values == sorted(values)


# --- the KL loss of the cosine energy ---


@pytest.mark.parametrize(
    ("dim", "temperature", "expected", "printed"),
    [
        (10, 0.1, -6.147785670551, -8.920374),
        (3, 0.5, -1.404779807946, -1.751353),
        (128, 0.1, -9.610539590702, -53.28),
    ],
)
def test_log_normaliser_of_the_cosine_energy(dim, temperature, expected, printed):
    value = sphere.cosine_log_normaliser(dim, temperature)
    assert value == pytest.approx(expected, abs=1e-12)
    by_quadrature = math.log(over_cosines(dim, lambda t: 1.0, lambda t: math.exp((t - 1) / temperature)))
    assert value == pytest.approx(by_quadrature, rel=1e-11)
    assert value - (dim / 2 - 1) * math.log(2) == pytest.approx(printed, abs=0.005)  # the constant the paper misses


def test_kl_of_the_cosine_energy_is_least_at_the_matching_concentration():
    for beta, expected in [(5, 0.596218774), (20, 0.659126972)]:
        assert sphere.cosine_kl(10, 0.1, beta) == pytest.approx(expected, abs=1e-9)
    assert sphere.cosine_kl(10, 0.1, 1e3) == pytest.approx(15.466, abs=1e-3)
    assert sphere.cosine_kl(10, 0.1, 10) == pytest.approx(0, abs=1e-14)
    best = minimize_scalar(lambda b: sphere.cosine_kl(10, 0.1, b), bounds=(1, 100), method="bounded")
    assert best.x == pytest.approx(10, abs=1e-3)
    assert sphere.cosine_kl(10, 0.1, 1e100) > 900  # not the minimum that the theorem promises


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("temperature", [10.0, 0.5, 0.05, 1e-6])
def test_kl_is_the_sum_of_its_three_terms(dim, temperature):
    log_z = sphere.cosine_log_normaliser(dim, temperature)
    for ratio in (0.0, 0.3, 0.9, 1.0, 1.1, 5.0):
        beta = ratio / temperature
        mean_energy = sphere.expected_alignment(dim, beta) / (2 * temperature)
        information = sphere.vmf_kl_from_uniform(dim, beta)
        size = mean_energy - log_z + information
        value = sphere.cosine_kl(dim, temperature, beta)
        assert value == pytest.approx(mean_energy + log_z + information, abs=1e-14 + 1e-13 * size)
        kept = sphere.cosine_kl_without_information(dim, temperature, beta)
        assert kept == pytest.approx(value - information, abs=1e-14 + 1e-13 * size)
        assert value == pytest.approx(0, abs=1e-13 * size) if ratio == 1.0 else value > 0


def test_only_the_part_without_information_falls_for_ever():
    betas = [0.0, 1.0, 5.0, 10.0, 20.0, 100.0, 1e4]
    kept = [sphere.cosine_kl_without_information(10, 0.1, b) for b in betas]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == pytest.approx(10 + sphere.cosine_log_normaliser(10, 0.1))
    assert kept[-1] == pytest.approx(sphere.cosine_log_normaliser(10, 0.1), abs=0.01)


def test_kl_against_quadrature():
    # E log of the densities' ratio, with densities normalised by quadrature
    dim, tau, beta = 7, 0.4, 6.0

    def log_constant(k):
        return math.log(over_cosines(dim, lambda t: 1.0, lambda t: math.exp(k * t)))

    mean = over_cosines(dim, lambda t: math.exp(beta * t), lambda t: t)
    expected = (beta - 1 / tau) * mean - log_constant(beta) + log_constant(1 / tau)
    assert sphere.cosine_kl(dim, tau, beta) == pytest.approx(expected, rel=1e-11)


# --- alignment, uniformity and the limit of InfoNCE ---


def test_uniformity_of_uniform_points():
    assert math.exp(sphere.expected_uniformity(2, 1)) == pytest.approx(0.308508323, abs=1e-9)
    assert math.exp(sphere.expected_uniformity(10, 1)) == pytest.approx(0.164768769, abs=1e-9)
    assert sphere.expected_uniformity(2) == pytest.approx(-1.575027, abs=1e-6)
    assert sphere.expected_uniformity(10) == pytest.approx(-3.246504, abs=1e-6)
    assert sphere.expected_uniformity(10**6) == pytest.approx(-4, abs=1e-5)


@pytest.mark.parametrize("dim", [2, 3, 10, 128])
def test_metrics_tend_to_the_closed_forms(dim):
    generator = np.random.default_rng(dim)
    z = sample_uniform(4000, dim, generator)
    assert uniformity(z) == pytest.approx(sphere.expected_uniformity(dim), abs=0.01)
    for kappa in (2.0, 40.0):
        distance = np.sum((z - sample_vmf(z, kappa, generator)) ** 2, axis=1)
        error = 4 * distance.std() / math.sqrt(len(z))
        assert alignment(z, sample_vmf(z, kappa, generator)) == pytest.approx(
            sphere.expected_alignment(dim, kappa), abs=error
        )


def test_limit_of_infonce_is_a_cross_entropy():
    limit = sphere.infonce_limit(10, 10, 0.1)
    assert limit.total == limit.alignment + limit.uniformity
    assert limit.total == pytest.approx(-sphere.vmf_kl_from_uniform(10, 10), rel=1e-14)
    assert limit.total + sphere.log_sphere_area(10) == pytest.approx(0.754273192675, abs=1e-12)
    # the critic's own terms, by quadrature
    other = sphere.infonce_limit(10, 10, 0.25)
    mean = over_cosines(10, lambda t: math.exp(10 * t), lambda t: (1 - t) / 0.25)
    spread = math.log(over_cosines(10, lambda t: 1.0, lambda t: math.exp((t - 1) / 0.25)))
    assert (other.alignment, other.uniformity) == (pytest.approx(mean), pytest.approx(spread))
    assert other.total > limit.total


def test_limit_of_infonce_by_monte_carlo():
    generator = np.random.default_rng(1)
    dim, kappa, tau, n, m = 5, 4.0, 0.4, 1000, 2000
    z = sample_uniform(n, dim, generator)
    right = np.sum(z * sample_vmf(z, kappa, generator), axis=1) / tau
    wrong = z @ sample_uniform(m, dim, generator).T / tau
    losses = np.log(np.exp(right) + np.exp(wrong).sum(axis=1)) - right - math.log(m)
    assert losses.mean() == pytest.approx(sphere.infonce_limit(dim, kappa, tau).total, abs=0.1)
    assert losses.std() / math.sqrt(n) < 0.04


# --- what an optimal encoder is ---


def test_optimal_radius_is_the_root_of_temperature_times_concentration():
    dim, kappa, tau = 10, 10, 0.3

    def cross_entropy(radius):
        return sphere.infonce_limit(dim, kappa, tau / radius**2).total + sphere.log_sphere_area(dim)

    best = minimize_scalar(cross_entropy, bounds=(0.5, 4), method="bounded", options={"xatol": 1e-9})
    assert sphere.optimal_radius(tau, kappa) == pytest.approx(1.73205081, abs=1e-8)
    assert best.x == pytest.approx(sphere.optimal_radius(tau, kappa), abs=1e-6)
    assert best.fun == pytest.approx(0.754273, abs=1e-6)
    assert cross_entropy(math.sqrt(tau / kappa)) == pytest.approx(3.175876, abs=1e-6)  # the radius in print
    assert sphere.optimal_radius(1 / kappa, kappa) == pytest.approx(1)


@pytest.mark.parametrize(("rate", "power", "expected"), [(25, 2, 5.0), (20, 1, 20.0), (400, 2, 20.0), (8, 3, 2.0)])
def test_optimal_scale_against_the_cross_entropy(rate, power, expected):
    assert sphere.optimal_scale(rate, power) == pytest.approx(expected)
    width = 40 ** (1 / power)

    def integral(f, r):  # over the line, where e^{−r |x|^p} still counts
        return 2 * quad(f, 0, width * r ** (-1 / power), epsabs=0, epsrel=1e-12)[0]

    def density(x, r):
        return math.exp(-r * x**power)

    mean = integral(lambda x: x**power * density(x, rate), rate) / integral(lambda x: density(x, rate), rate)

    def cross_entropy(scale):
        r = scale**power
        return r * mean + math.log(integral(lambda x: density(x, r), r))

    best = minimize_scalar(
        cross_entropy, bounds=(expected / 2, expected * 2), method="bounded", options={"xatol": 1e-9 * expected}
    )
    assert best.x == pytest.approx(expected, rel=1e-5)


def orthogonal(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((rows, columns)))[0]


@pytest.mark.parametrize("features", [6, 9])
def test_an_optimal_encoder_is_recognised(features):
    z = sample_uniform(300, 6, np.random.default_rng(0))
    matrix = math.sqrt(0.3 * 10) * orthogonal(features, 6)
    fit = sphere.optimal_encoder_map(z, z @ matrix.T, temperature=0.3, concentration=10)
    np.testing.assert_allclose(fit.matrix, matrix, atol=1e-13)
    np.testing.assert_allclose(fit.offset, 0, atol=1e-14)
    assert fit.r2 == pytest.approx(1, abs=1e-14)
    assert fit.departure == pytest.approx(0, abs=1e-13)
    assert fit.scale == pytest.approx(math.sqrt(3))
    assert fit.scale_ratio == pytest.approx(1)
    printed = sphere.optimal_encoder_map(z, z @ orthogonal(6, 6) * math.sqrt(0.3 / 10), 0.3, 10)
    assert printed.scale_ratio == pytest.approx(1 / 10)  # √(τ/κ) over √(τκ)


def test_other_encoders_are_told_apart():
    generator = np.random.default_rng(0)
    z = sample_uniform(500, 4, generator)
    moved = sphere.optimal_encoder_map(z, z @ orthogonal(4, 4) + 3.0, 1, 1)
    assert moved.r2 == pytest.approx(1)
    np.testing.assert_allclose(moved.offset, 3)
    stretched = sphere.optimal_encoder_map(z, z * [1, 2, 3, 4], 1, 1)
    assert stretched.r2 == pytest.approx(1)
    square = np.array([1, 4, 9, 16]) / 7.5
    assert stretched.scale == pytest.approx(math.sqrt(7.5))
    assert stretched.departure == pytest.approx(math.sqrt(np.mean((square - 1) ** 2)))
    dropped = sphere.optimal_encoder_map(z, z[:, :3], 1, 1)
    assert dropped.departure == pytest.approx(math.sqrt(4 / 3 - 1))
    noise = sphere.optimal_encoder_map(z, generator.standard_normal((500, 4)), 1, 1)
    assert noise.r2 == pytest.approx(0, abs=0.02)
    bent = sphere.optimal_encoder_map(z, np.sign(z), 1, 1)
    assert 0.5 < bent.r2 < 0.95


def test_r2_leaves_each_row_out():
    generator = np.random.default_rng(3)
    z, h = generator.standard_normal((12, 3)), generator.standard_normal((12, 2))
    design = np.column_stack([np.ones(12), z])
    missed, spread = 0.0, 0.0
    for i in range(12):
        rest = np.arange(12) != i
        solution = np.linalg.lstsq(design[rest], h[rest], rcond=None)[0]
        missed += np.sum((h[i] - design[i] @ solution) ** 2)
        spread += np.sum((h[i] - h[rest].mean(axis=0)) ** 2)
    assert sphere.optimal_encoder_map(z, h, 1, 1).r2 == pytest.approx(1 - missed / spread)


# --- refusals ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sphere.log_sphere_area(1), "dim must be a whole number of at least 2, not 1"),
        (lambda: sphere.log_vmf_normaliser(2.5, 1.0), "dim must be a whole number of at least 2, not 2.5"),
        (lambda: sphere.mean_resultant_length(True, 1.0), "dim must be a whole number"),
        (lambda: sphere.log_vmf_normaliser(3, -1.0), "concentration must be a finite number of zero or more, not -1.0"),
        (
            lambda: sphere.mean_resultant_length(3, math.inf),
            "concentration must be a finite number of zero or more, not inf",
        ),
        (
            lambda: sphere.vmf_kl_from_uniform(3, "much"),
            "concentration must be a finite number of zero or more, not 'much'",
        ),
        (lambda: sphere.vmf_entropy(3, math.nan), "concentration must be a finite number of zero or more, not nan"),
        (lambda: sphere.cosine_log_normaliser(3, 0), "temperature must be a finite number above zero, not 0"),
        (lambda: sphere.cosine_kl(3, 1e-310, 1.0), "temperature must be large enough to divide by, not 1e-310"),
        (lambda: sphere.infonce_limit(3, 1j, 1.0), "concentration must be a finite number of zero or more, not 1j"),
        (lambda: sphere.expected_uniformity(3, -2.0), "t must be a finite number above zero"),
        (lambda: sphere.optimal_radius(0.1, 0), "concentration must be a finite number above zero"),
        (lambda: sphere.optimal_scale(0, 2), "rate must be a finite number above zero"),
        (lambda: sphere.optimal_encoder_map(np.eye(5), np.eye(4), 1, 1), "latents have 5 rows and representations 4"),
        (lambda: sphere.optimal_encoder_map(np.eye(3), np.eye(3), 1, 1), "3 rows are too few to fit 3 latents"),
        (lambda: sphere.optimal_encoder_map(np.ones(3), np.eye(3), 1, 1), r"latents must have two .* shape is \(3,\)"),
        (lambda: sphere.optimal_encoder_map(np.eye(9, 2), np.ones((9, 2)), 1, 1), "representations are constant"),
        (lambda: sphere.optimal_encoder_map(np.ones((9, 2)), np.eye(9, 2), 1, 1), "latents do not span"),
        (lambda: sphere.optimal_encoder_map([["a"]], [[1]], 1, 1), "latents must be an array of numbers"),
        (lambda: sphere.optimal_encoder_map([[math.nan]], [[1]], 1, 1), "latents must be finite: nan at 0, 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(InputError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
