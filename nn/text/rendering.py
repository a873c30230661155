"""The rendering of a chat template: jinja2's sandbox, with what transformers gives to such
templates.

`nn.text.templates` runs this file as a program: it imports neither NumPy nor this package, and
starts soon.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import signal
import sys
from typing import Any

__all__ = ["rendered"]


def rendered(source: str, given: dict[str, Any]) -> bytes:
    """A line feed, and what the template makes of what is given; or what went wrong, a line feed,
    and how. In UTF-8.
    """
    try:
        return _bytes("", _environment().from_string(source).render(given))
    except MemoryError:
        return _bytes(
            "chat_template", "it takes too much memory (loops, or repeated text, without a bound)"
        )
    except Exception as error:  # a template is a program of somebody else's: it can raise anything
        what = (
            "the chat template refuses"
            if type(error).__name__ == "TemplateError"
            else "chat_template"
        )
        return _bytes(what, " ".join(str(error).split())[:1000] or type(error).__name__)


def _bytes(what: str, text: str) -> bytes:
    return f"{what}\n{text}".encode("utf-8", "surrogatepass")


def _environment() -> Any:
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """`{% generation %}`, which tells a trainer what the model said: here only its inside
        counts.
        """

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return jinja2.nodes.Scope(
                parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line
            )

    class Namespace(jinja2.utils.Namespace):
        """One that cannot be given what Python calls by itself, such as `__call__`."""

        def __init__(self, /, *values: Any, **named: Any) -> None:
            super().__init__()
            for name, value in dict(*values, **named).items():
                self[name] = value

        def __setitem__(self, name: str, value: Any) -> None:
            if str(name).startswith("_"):
                raise jinja2.sandbox.SecurityError(
                    f"a namespace has no names that begin with _, got {name!r}"
                )
            super().__setitem__(name, value)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(
        x: Any,
        ensure_ascii: bool = False,
        indent: Any = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:  # no other options: `default` would call what the sandbox has not seen
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {"namespace": Namespace, "raise_exception": raise_exception}
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment


def _bound(seconds: float, memory: int) -> None:
    """What this process may take: of time, too, should nobody be left to end it."""
    with contextlib.suppress(ImportError):  # Windows has no such bounds
        import resource

        for name, most in (
            ("RLIMIT_CORE", 0),
            ("RLIMIT_CPU", math.ceil(seconds) + 1),
            ("RLIMIT_AS", memory),
        ):
            with contextlib.suppress(
                AttributeError, ValueError, OSError
            ):  # nor has every other system each
                resource.setrlimit(getattr(resource, name), (most, most))


def main() -> None:
    """What `templates.render` asks comes as JSON; what `rendered` answers goes back."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    data = sys.stdin.buffer.read()
    task = json.loads(data.decode("utf-8", "surrogatepass"))
    _bound(task["seconds"], task["memory"] + 10 * len(data))
    sys.path += task["path"]
    sys.stdout.buffer.write(rendered(task["source"], task["given"]))


if __name__ == "__main__":
    main()
