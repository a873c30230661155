"""Fit a damped oscillation to noisy data, with error bars: a notebook with NumPy and SciPy."""

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import approx_fprime, minimize

rng = np.random.default_rng(0)
time = np.linspace(0, 8, 80)
truth = np.array([2.0, 0.3, 1.7, 0.4])  # amplitude, decay, frequency, phase
noise = 0.1


# %%
def model(parameters, time):
    """Return a damped oscillation."""
    amplitude, decay, frequency, phase = parameters
    return amplitude * np.exp(-decay * time) * np.cos(frequency * time + phase)


def loss(parameters):
    """Return the negative logarithm of the posterior, up to a constant."""
    residuals = (data - model(parameters, time)) / noise
    prior = np.sum((parameters - 1.0) ** 2) / 25
    return 0.5 * (np.sum(residuals**2) + prior)


data = model(truth, time) + noise * rng.standard_normal(time.shape)

# %%
gradient = lambda p: approx_fprime(p, loss, 1e-7)
hessian = lambda p: approx_fprime(p, gradient, 1e-5)
start = np.array([1.0, 0.1, 1.5, 0.0])
fit = minimize(loss, start, jac=gradient, method="BFGS")
covariance = np.linalg.inv(hessian(fit.x))
errors = np.sqrt(np.diag(covariance))
for name, value, error in zip(["amplitude", "decay", "frequency", "phase"], fit.x, errors):
    print(f"{name:10} {value:.3f} ± {error:.3f}")

# %%
# Uncertainty of a prediction: how much it changes with each parameter.
future = np.linspace(8, 12, 40)
slopes = approx_fprime(fit.x, model, 1e-7, future)
spread = np.sqrt(np.sum(slopes @ covariance * slopes, axis=1))
prediction = model(fit.x, future)

figure, axes = plt.subplots()
axes.plot(time, data, ".")
axes.plot(future, prediction)
axes.fill_between(future, prediction - spread, prediction + spread, alpha=0.3)
