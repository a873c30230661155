"""Use tensors as arrays and numbers: comparisons, writes, copies, modes, hooks.

python examples/book/tensors.py
"""

import copy
import operator
import pickle

import numpy as np

import minigrad as mg

# Tensors compare as arrays do, and convert to numbers.
t = mg.Tensor([1.0, 2.0, 3.0])
for compare in (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge):
    print(f"{compare.__name__}: {compare(t, 2.0).tolist()}")
    assert np.array_equal(compare(t, 2.0), compare(t.data, 2.0))
loss = mg.Tensor(2.0)
assert bool(loss) and float(loss) == 2.0 and int(loss) == 2 and complex(loss) == 2 + 0j
assert [10, 20, 30][mg.Tensor(1)] == 20 and {loss: 1}[loss] == 1 and loss.numpy() == 2
print(repr(t), f"{loss:.3f} {loss}")

# They can be copied and pickled.
weight = mg.Tensor(np.eye(2), requires_grad=True)
(weight * weight).sum().backward()
for other in copy.copy(weight), copy.deepcopy(weight), pickle.loads(pickle.dumps(weight)):
    assert other.tolist() == weight.tolist() and other.requires_grad
assert len(weight) == 2 and 1 in weight and [row.sum().item() for row in weight] == [1, 1]

# They can be written into, as arrays.
counts = mg.Tensor(np.zeros(3))
counts[[0, 2]] = 5
counts += 1
assert counts.tolist() == [6, 1, 6] and mg.Tensor(counts).data is counts.data


# Operations are recorded, or not, for a function, a block, and the steps of a generator.
@mg.no_grad
def silent(x):
    yield (x * 2).requires_grad
    with mg.enable_grad():
        doubled = (x * 2).requires_grad
    yield doubled


assert [*silent(weight), mg.is_grad_enabled()] == [False, True, True]
assert not mg.no_grad(lambda x: x * 2)(weight).requires_grad

# A hook changes a gradient on its way. A leaf that is frozen collects none.
middle = (weight.clone() * 2).reshape(-1)
middle.retain_grad()
handle = middle.register_hook(lambda g: g * 10)
weight.grad = None
weight.requires_grad_(False)
weight.data = weight.data + 1
weight.requires_grad_()
middle.sum().backward()
handle.remove()
print("a hook multiplies by 10:", weight.grad)
assert weight.grad.tolist() == [[20, 20], [20, 20]] and middle.grad.tolist() == [10] * 4
