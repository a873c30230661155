"""Two small English texts, made by grammars: tales for a language model, opinions for a classifier.

`tales(n)` gives fables of about 600 characters, in which names, animals and things come back where a reader expects
them. `opinions(n)` gives (text, class) pairs whose class depends on which clause is the main one and on what is
negated: it cannot be told by counting words.
"""

from __future__ import annotations

import numpy as np

_ANIMALS = [
    "fox",
    "hen",
    "wolf",
    "hare",
    "bear",
    "crow",
    "goat",
    "mouse",
    "owl",
    "donkey",
    "frog",
    "heron",
]
_NAMES = ["Anna", "Bruno", "Clara", "Dario", "Edith", "Felix", "Greta", "Hugo", "Irma", "Jonas"]
_PLACES = [
    "in a dark forest",
    "by a quiet river",
    "near an old mill",
    "on a green hill",
    "at the edge of a village",
]
_TIMES = [
    "One morning",
    "One evening",
    "In the first days of spring",
    "On a cold winter night",
    "After the harvest",
]
_THINGS = [
    "a golden ring",
    "a sack of corn",
    "a silver bell",
    "a loaf of bread",
    "a lantern",
    "a red apple",
    "a map",
]
_MOODS = ["proud", "clever", "lazy", "brave", "greedy", "patient", "lonely", "merry"]
_FEARS = [
    "the storm",
    "the hunter",
    "the long night",
    "the deep water",
    "the great dog of the miller",
]
_PLEAS = ["I have not eaten for three days", "I have lost my way", "I am so tired"]
_MORALS = {
    "shared": [
        "What is shared is doubled.",
        "A gift comes home again.",
        "Two friends eat better than one king.",
    ],
    "kept": [
        "Who keeps all keeps nothing.",
        "A full sack makes a lonely road.",
        "Greed runs fast and arrives late.",
    ],
}


def tale(rng: np.random.Generator) -> str:
    """A fable: two animals, a thing that is found, and what comes of sharing or keeping it."""
    one = lambda options: options[rng.integers(len(options))]
    first, second = rng.permutation(_ANIMALS)[:2]
    name, other = rng.permutation(_NAMES)[:2]
    place, thing, fear, mood = one(_PLACES), one(_THINGS), one(_FEARS), one(_MOODS)
    short = thing.split(" ")[-1]
    article = "an" if first[0] in "aeiou" else "a"
    lines = [
        f"Once upon a time {article} {first} named {name} lived {place}. The {first} was {mood}, and "
        f"was afraid of nothing but {fear}.",
        f'{one(_TIMES)} {name} found {thing} under a stone. "{one(["What luck", "How strange", "At last"])}!" said '
        f'the {first}. "Whose {short} may this be?"',
        f'Then came the {second}, whose name was {other}. "{one(["Good day", "Good evening", "Dear friend"])}, '
        f'{name}," said the {second}. "{one(_PLEAS)}. '
        f'Will you help me?"',
    ]
    if rng.random() < 0.5:
        lines += [
            f'"Take half of what I have," said {name}, and gave the {second} a place by the fire. When {fear} came, '
            f"the {second} stood at the door, and the {first} was afraid no more.",
            f"From that day on {name} and {other} lived together {place}. {one(_MORALS['shared'])}",
        ]
    else:
        lines += [
            f'"I found it, and I keep it," said {name}, and ran away with the {short}. But {fear} came, and there was '
            f"nobody to stand at the door.",
            f"So the {first} lost the {short} and the way home, and {other} went on alone. {one(_MORALS['kept'])}",
        ]
    return "\n".join(lines) + "\n\n"


def tales(count: int = 170, seed: int = 0) -> str:
    """So many tales: the default is a text of about 100 kB."""
    rng = np.random.default_rng(seed)
    return "".join(tale(rng) for _ in range(count))


_SUBJECTS = [
    "the plot",
    "the food",
    "the music",
    "the service",
    "the ending",
    "the room",
    "the view",
    "the staff",
]
_GOOD = ["good", "wonderful", "lovely", "excellent", "charming", "superb"]
_BAD = ["bad", "dreadful", "dull", "awful", "disappointing", "poor"]
_PLAIN = ["is {}", "is very {}", "is really {}", "turned out to be {}"]
_NEGATED = ["is not {}", "is hardly {}", "is never {}", "is anything but {}"]


def _clause(rng: np.random.Generator, good: bool) -> str:
    one = lambda options: options[rng.integers(len(options))]
    negated = rng.random() < 0.5
    word = one(_GOOD if good != negated else _BAD)
    return f"{one(_SUBJECTS)} {one(_NEGATED if negated else _PLAIN).format(word)}"


def opinions(count: int = 4000, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs (text, "good" or "bad"): the class is that of the main clause; the other clause often says the opposite."""
    rng = np.random.default_rng(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        good = bool(rng.random() < 0.5)
        main, other = _clause(rng, good), _clause(rng, bool(rng.random() < 0.5))
        form = ["although {1} , {0}", "{1} , but {0}", "{0} , even if {1}", "{0} , although {1}"][
            rng.integers(4)
        ]
        found[form.format(main, other)] = "good" if good else "bad"
    return list(found.items())
