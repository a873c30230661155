"""Tables of lesson 2 and their arrows."""

from __future__ import annotations

import numpy as np
from support.scripts import load

script = load("things")


def test_lay_answer_is_the_number_of_the_requested_thing() -> None:
    tables = script.lay(50, np.random.default_rng(3))
    assert (tables.red.sum(1) == 1).all()
    for shapes, numbers, x, question, answer in zip(
        tables.shapes, tables.numbers, tables.x, tables.question, tables.answer
    ):
        assert len(set(shapes)) == 6
        (i,) = np.flatnonzero(shapes == question.argmax())
        assert numbers[i] == answer == x[i, 10:].argmax()
        assert x[i, :8].tolist() == question.tolist()


def test_arrows_form_one_circle_and_name_their_targets() -> None:
    x, target = script.arrows(20, np.random.default_rng(4))
    for things, to in zip(x, target):
        assert (things[:, 8:] == things[to, :8]).all()
        visited = [0]
        for _ in range(6):
            visited.append(int(to[visited[-1]]))
        assert sorted(visited) == [0, *range(6)]
