"""Watch operations, and change the steps of optimizers, as the packages around the book do.

python examples/book/tools.py
"""

import numpy as np

import minigrad as mg
from minigrad.modes import MODE, Mode, leave
from minigrad.optimizer import Stepper


class Names:
    """The names of operations, and with a prime those of their derivatives."""

    def __enter__(self):
        mode, self.seen = MODE.get(), []
        MODE.set(Mode(mode.record, self, mode.traced, mode, self))
        return self.seen

    def __exit__(self, *error):
        leave(self)

    def forward(self, op, function, args, options):
        self.seen.append(op.name)
        return function(*args, **options)

    def backward(self, node, rule, g, args):
        self.seen.append(f"{node.op.name}'")
        return rule(g, *args)

    def recorded(self, node):
        assert repr(node).endswith(f": {node.op.name} {node.shape} {node.dtype}>")


with Names() as seen:
    mg.multiply(mg.Tensor([1.0, 2.0], requires_grad=True), 2).sum().backward()
print("seen:", *seen)
assert seen == ["multiply", "sum", "sum'", "multiply'"]


class Printing(Stepper):
    """Steps that print the norm of the gradients."""

    def take(self):
        norm = super().take()
        print(f"norm of the gradients: {norm:.3f}")
        return norm


class SignDescent(mg.optim.Optimizer):
    """An optimizer that uses the sign of the gradient alone."""

    stepper_type = Printing

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def _update(self, p, g, state, settings):
        p -= settings["lr"] * np.sign(g)


weights = mg.Tensor(np.array([1.0, 2.0]), requires_grad=True)
optimizer = SignDescent([weights], lr=0.5)
(weights * weights).sum().backward()
optimizer.step()
assert weights.tolist() == [0.5, 1.5]
