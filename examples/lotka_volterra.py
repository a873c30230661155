"""Fit the Lotka-Volterra equations of prey and predators to noisy counts.

    python examples/lotka_volterra.py

The solver is plain NumPy. `mg.jacobian` differentiates through all of its steps, for
`scipy.optimize.least_squares` if SciPy is installed, and otherwise for Gauss-Newton steps.
"""

import argparse

import numpy as np

import minigrad as mg

try:
    from scipy.optimize import least_squares
except ImportError:
    least_squares = None

NAMES = "birth of prey", "catch", "death of predators", "gain per catch"
TRUTH = np.array([1.1, 0.4, 0.9, 0.2])
START = np.array([1.0, 0.3, 0.8, 0.25])
FIRST_COUNTS = np.array([6.0, 3.0])
STEPS = 5  # of the solver from one count to the next
INTERVAL = 0.5


def growth(counts, rates):
    """Return the time derivatives of the numbers of prey and predators."""
    prey, predators = counts
    birth, catch, death, gain = rates
    return np.stack([prey * (birth - catch * predators), predators * (gain * prey - death)])


def solve(rates, intervals):
    """Return the counts after each interval, by the classical Runge-Kutta method."""
    counts, h, results = FIRST_COUNTS, INTERVAL / STEPS, []
    for step in range(intervals * STEPS):
        k1 = growth(counts, rates)
        k2 = growth(counts + h / 2 * k1, rates)
        k3 = growth(counts + h / 2 * k2, rates)
        k4 = growth(counts + h * k3, rates)
        counts = counts + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        if (step + 1) % STEPS == 0:
            results.append(counts)
    return np.stack(results)


def gauss_newton(residuals, jacobian, x, steps=20):
    """Minimize the sum of squares; a step that does not reduce it is halved."""
    for _ in range(steps):
        r = residuals(x)
        step = np.linalg.lstsq(jacobian(x), -r)[0]
        while (residuals(x + step) ** 2).sum() > (r**2).sum() and abs(step).max() > 1e-12:
            step = step / 2
        x = x + step
    return x


def main(argv=None):
    """Simulate counts, fit the rates, and print them beside the true ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--intervals", type=int, default=20, help="number of counts to fit")
    parser.add_argument("--noise", type=float, default=0.01, help="relative error of the counts")
    args = parser.parse_args(argv)

    rng = np.random.default_rng(0)
    shape = args.intervals, 2
    observed = solve(TRUTH, args.intervals) * np.exp(args.noise * rng.standard_normal(shape))

    def residuals(logarithms):  # of the rates, which are positive
        return np.log(solve(np.exp(logarithms), args.intervals) / observed).ravel()

    def jacobian(logarithms):
        return mg.jacobian(residuals)(logarithms).data

    if least_squares is None:
        found = np.exp(gauss_newton(residuals, jacobian, np.log(START)))
    else:
        found = np.exp(least_squares(residuals, np.log(START), jac=jacobian).x)
    print(f"{'':20}{'start':>8}{'found':>8}{'truth':>8}")
    for name, *values in zip(NAMES, START, found, TRUTH):
        print(f"{name:20}" + "".join(f"{value:8.4f}" for value in values))
    return found


if __name__ == "__main__":
    main()
