"""Run tests on mutants of modules, which cosmic-ray makes, and print the mutants that pass.

    python -m tools.mutants minigrad/ops/network.py
    python -m tools.mutants minigrad/ops/*.py nn/attention.py --sample 100

`mutants.toml` lists the tests of each module. They run once as a baseline, which records the time
of each test and the lines of the modules that it runs. A mutant is then tested by the tests that
run its lines until one fails: first those that found other mutants of the function, then those
whose names contain it, then those that found mutants of the module, then the quick ones.

No file is changed. A mutant of a function is tested in a fork of a process that has collected the
tests, in which the code of the function is replaced. A mutant of other code, such as a default
argument, is tested in a fork that has not imported the module yet.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import gc
import inspect
import itertools
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import hypothesis
import pytest
import toml
from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db

ROOT = Path(__file__).parents[1]
OPTIONS = ["-x", "--tb=no", "--no-header", "--no-summary", "-p", "no:cacheprovider"]
OPTIONS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is imported here


@dataclass
class Baseline:
    """Tests that pass without a mutant.

    Parameters
    ----------
    seconds : dict of float
        CPU time of each test.
    lines : dict of set
        For each test, pairs of a module and a line that the test runs.
    failed : list of str
        Tests that fail.
    killers : Counter
        Number of mutants of a module, and of a definition in it, that a test has found so far.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    killers: Counter[tuple[str, ...]] = field(default_factory=Counter)


@dataclass
class Mutant:
    """Module with one change."""

    module: str
    definition: str
    lines: range
    source: str
    mutated: str

    def diff(self) -> str:
        """Return the change."""
        before, after = self.source.splitlines(), self.mutated.splitlines()
        names = self.module, self.module
        return "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=1))

    def compiled(self) -> tuple[CodeType, CodeType]:
        """Return the code of the module before and after the change."""
        path = str(ROOT / self.module)
        before, after = (
            compile(text, path, "exec", dont_inherit=True) for text in (self.source, self.mutated)
        )
        return before, after


# -- mutants


def _statement(tree: ast.Module, lines: range) -> range:
    """Return the lines of the smallest statement or lambda around some lines."""
    best = range(1, 1 << 30)
    for node in ast.walk(tree):
        if isinstance(node, (ast.stmt, ast.Lambda, ast.ExceptHandler)):
            first, last = node.lineno, node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if isinstance(body, list) and lines[-1] < body[0].lineno:
                last = body[0].lineno - 1  # the head of a compound statement
            if first <= lines[0] and lines[-1] <= last and last - first < len(best):
                best = range(first, last + 1)
    return best


def _annotations(tree: ast.Module) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where annotations begin and end; a change of one changes nothing."""
    found = [getattr(n, name, None) for n in ast.walk(tree) for name in ("annotation", "returns")]
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in found if n]


def all_mutants(modules: list[str]) -> list[Any]:
    """Return the mutations of modules, without those of annotations."""
    with tempfile.TemporaryDirectory() as name, use_db(str(Path(name, "db"))) as db:
        init([Path(module) for module in modules], db, {})
        mutations = [item.mutations[0] for item in db.work_items]
    trees = {m: ast.parse((ROOT / m).read_text(encoding="utf-8")) for m in modules}
    ignored = {module: _annotations(tree) for module, tree in trees.items()}
    return [
        m
        for m in mutations
        if not any(
            first <= tuple(m.start_pos) and tuple(m.end_pos) <= last
            for first, last in ignored[str(m.module_path)]
        )
    ]


def mutant_of(mutation: Any) -> Mutant:
    """Return the mutant that a mutation of cosmic-ray makes."""
    module = str(mutation.module_path)
    source = (ROOT / module).read_text(encoding="utf-8")
    operator = get_operator(mutation.operator_name)(**mutation.operator_args)
    lines = range(mutation.start_pos[0], mutation.end_pos[0] + 1)
    lines = _statement(ast.parse(source), lines)
    mutated = mutate_code(source, operator, mutation.occurrence)
    return Mutant(module, mutation.definition_name or "", lines, source, mutated)


# -- code of functions


def _children(code: CodeType) -> list[CodeType]:
    return [x for x in code.co_consts if isinstance(x, CodeType)]


def _own(code: CodeType) -> Any:
    """Return what a code contains beside the code of its functions."""
    consts = [repr(x) for x in code.co_consts if not isinstance(x, CodeType)]
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars


def changed_functions(before: CodeType, after: CodeType) -> dict[CodeType, CodeType] | None:
    """Return the code of functions that differ; None if other code differs."""
    is_function = bool(before.co_flags & inspect.CO_NEWLOCALS)
    if not is_function and _own(before) != _own(after):
        return None
    pairs = {before: after} if is_function and before != after else {}
    if len(_children(before)) == len(_children(after)):
        for x, y in zip(_children(before), _children(after)):
            inner = changed_functions(x, y)
            if inner is None:
                return pairs or None  # a class in a function
            pairs |= inner
    return pairs


# -- processes


def fork(function: Callable[[], Any], cpu_seconds: float, wall_seconds: int) -> Any:
    """Return the result of a function in a child process, or "timeout"."""
    with tempfile.NamedTemporaryFile() as file:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                limit = int(time.process_time() + cpu_seconds) + 1
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(wall_seconds)
                with open(file.name, "wb") as stream:
                    pickle.dump(function(), stream)
                status = 0
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            killed = os.WTERMSIG(status)
            is_time = killed in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM)
            return "timeout" if is_time else f"signal {killed}"
        return pickle.load(file) if status == 0 else "error"


class Server:
    """Plugin of pytest that collects tests, and runs them in forks."""

    def __init__(self, work: Callable[[Server], None]) -> None:
        self.work = work
        self.failed: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        """Set a profile of hypothesis in which a failure is neither shrunk nor stored."""
        ci = hypothesis.settings.get_profile("ci")
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", ci, phases=phases, print_blob=False, report_multiple_bugs=False
        )
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failure."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Do the work instead of running the tests once."""
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
            session.config.pluginmanager.unregister(reporter)
        self.work(self)
        return True

    def run(self, names: list[str]) -> str | None:
        """Run tests in this process; return the first that fails."""
        loop = sys.modules["_pytest.main"].pytest_runtestloop
        self.session.items = [self.items[name] for name in names if name in self.items]
        with contextlib.suppress(pytest.Session.Failed):
            loop(self.session)
        return self.failed[0] if self.failed else None

    def baseline(self, modules: list[str]) -> Baseline:
        """Run each test and record what it runs."""
        files = {str(ROOT / module): module for module in modules}
        result = Baseline()
        lines: set[tuple[str, int]] = set()

        def trace_lines(frame: Any, event: str, _: Any) -> Any:
            lines.add((files[frame.f_code.co_filename], frame.f_lineno))
            return trace_lines

        def trace(frame: Any, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename in files:
                return trace_lines(frame, event, argument)
            return None

        for name in self.items:
            lines.clear()
            self.failed.clear()
            self.session.shouldfail = False
            self.session.testsfailed = 0
            start = time.process_time()
            threading.settrace(trace)
            sys.settrace(trace)
            failed = self.run([name])
            sys.settrace(None)
            result.seconds[name] = time.process_time() - start
            result.lines[name] = set(lines)
            if failed:
                result.failed.append(name)
        return result


# -- tests


def tests_of(module: str, tests: dict[str, list[str]]) -> list[str]:
    """Return the paths of tests of a module in `mutants.toml`."""
    return tests[max((path for path in tests if module.startswith(path)), key=len)]


def chosen_tests(
    mutant: Mutant, base: Baseline, limit: float, is_import: bool = False
) -> list[str]:
    """Return the first tests of the best order that run the lines of a mutant, or its module.

    They take about `limit` seconds of CPU time.
    """
    function = mutant.definition.split(".")[-1].lower().strip("_") or "?"

    def order(name: str) -> tuple[int, bool, int, float]:
        killed = base.killers[mutant.module, mutant.definition, name]
        near = base.killers[mutant.module, name]
        return -killed, function not in name.lower(), -near, base.seconds[name]

    chosen = [
        name
        for name, lines in base.lines.items()
        if name not in base.failed
        and any(m == mutant.module and (is_import or n in mutant.lines) for m, n in lines)
    ]
    chosen.sort(key=order)
    sums = itertools.accumulate(base.seconds[name] for name in chosen)
    return [name for name, total in zip(chosen, sums) if total <= limit] or chosen[:1]


def test_import(mutant: Mutant, base: Baseline, limit: float) -> Any:
    """Test a mutant of code that runs at import; return the test that fails."""
    names = chosen_tests(mutant, base, limit, is_import=True)
    files = [*dict.fromkeys(name.partition("::")[0] for name in names)]
    path, code = str(ROOT / mutant.module), mutant.compiled()[1]
    get_code = SourceFileLoader.get_code

    def mutated(self: Any, fullname: str) -> Any:
        return code if self.path == path else get_code(self, fullname)

    def child() -> str | None:
        SourceFileLoader.get_code = mutated  # type: ignore[method-assign]
        found: list[str | None] = []
        redirect(os.devnull)
        pytest.main([*OPTIONS, *files], plugins=[Server(lambda s: found.append(s.run(names)))])
        return found[0] if found else "import"

    return fork(child, *limits_of(names, base)) if names else None


def redirect(path: str) -> None:
    """Write what this process prints to a file."""
    file = os.open(path, os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)


def serve(
    server: Server, modules: list[str], mutations: list[Any], limit: float, send: Any
) -> None:
    """Send the baseline, and then the outcome of each mutation."""
    base = fork(lambda: server.baseline(modules), 3600, 3600)
    send(base)
    hypothesis.given(hypothesis.strategies.text())(lambda x: None)()  # fills its caches
    files = {str(ROOT / module) for module in modules}
    functions: dict[CodeType, list[FunctionType]] = defaultdict(list)
    gc.unfreeze()  # conftest.py freezes what the collection of tests leaves
    for f in gc.get_objects():
        if type(f) is FunctionType and f.__code__.co_filename in files:  # a proxy can be dead
            functions[f.__code__].append(f)
    gc.freeze()
    for mutation in mutations:
        send((mutation, *test_functions(server, base, functions, mutation, limit)))


def run_mutants(
    modules: list[str], mutations: list[Any], tests: list[str], limit: float, log: str
) -> Iterator[Any]:
    """Yield the baseline, and then each mutant with its outcome and its time.

    The outcome is the name of the test that fails, "timeout", or None. pytest writes to `log`.
    """
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        with os.fdopen(write, "wb") as output:

            def send(value: Any) -> None:
                pickle.dump(value, output)
                output.flush()

            redirect(log)
            work = lambda server: serve(server, modules, mutations, limit, send)
            pytest.main([*OPTIONS, *tests], plugins=[Server(work)])
            sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        try:
            base = pickle.load(stream)
        except EOFError:
            text = Path(log).read_text(encoding="utf-8")
            raise SystemExit(f"pytest must collect the tests, got:\n{text}") from None
        if not isinstance(base, Baseline):
            raise SystemExit(f"the tests must pass without a mutant, got {base}")
        yield base
        later = []
        for _ in mutations:
            mutation, outcome, seconds = pickle.load(stream)
            if outcome == "import":
                later.append(mutation)
            else:
                yield mutant_of(mutation), outcome, seconds
    os.waitpid(pid, 0)
    for mutation in later:
        mutant, start = mutant_of(mutation), time.perf_counter()
        yield mutant, test_import(mutant, base, limit), time.perf_counter() - start


def limits_of(names: list[str], base: Baseline) -> tuple[float, int]:
    """Return the limits of CPU time and time of a mutant."""
    seconds = 10 + 5 * sum(base.seconds[name] for name in names)
    return seconds, int(20 * seconds)


def test_functions(
    server: Server,
    base: Baseline,
    functions: dict[CodeType, list[FunctionType]],
    mutation: Any,
    limit: float,
) -> tuple[Any, float]:
    """Test a mutant in a fork of this process; return "import" if that is not possible."""
    start = time.perf_counter()
    mutant = mutant_of(mutation)
    try:
        pairs = changed_functions(*mutant.compiled())
    except (SyntaxError, ValueError):
        return "syntax", 0.0
    names = chosen_tests(mutant, base, limit)
    if pairs is None or not names:
        return "import", 0.0

    def child() -> str | None:
        for old, new in pairs.items():
            for function in functions.get(old, ()):
                function.__code__ = new
        return server.run(names)

    outcome = fork(child, *limits_of(names, base))
    if outcome is not None:
        base.killers[mutant.module, mutant.definition, outcome] += 1
        base.killers[mutant.module, outcome] += 1
    return outcome, time.perf_counter() - start


def report(modules: list[str], results: Iterator[Any], count: int) -> None:
    """Print the mutants that survive, and a row for each module."""
    base = next(results)
    seconds = sum(base.seconds.values())
    print(
        f"baseline: {len(base.seconds)} tests, {seconds:.0f} s, failed: {base.failed}", flush=True
    )
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for i, (mutant, outcome, duration) in enumerate(results, 1):
        kind = "survived" if outcome is None else "timeout" if outcome == "timeout" else "killed"
        rows[mutant.module][kind] += 1
        if kind != "killed":
            print(f"{kind} {duration:.1f} s\n{mutant.diff()}\n", flush=True)
        if i % 50 == 0:
            print(f"{i} of {count}: {dict(sum(rows.values(), Counter()))}", flush=True)
    for module in modules:
        print(f"{module}: {dict(rows[module])}")


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("modules", nargs="+", help="paths of modules in the repository")
    parser.add_argument("--sample", type=int, help="number of mutants, drawn at random (all)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (%(default)s)")
    text = "CPU time of the tests of a mutant, without the mutant (%(default)s)"
    parser.add_argument("--seconds", type=float, default=30.0, help=text)
    parser.add_argument("-k", default="", help="tests that are used, as of pytest (all)")
    parser.add_argument("--fast", action="store_true", help="leave out tests that are marked slow")
    args = parser.parse_args()
    os.chdir(ROOT)
    os.environ |= {"HYPOTHESIS_PROFILE": "ci", "OMP_NUM_THREADS": "1"}
    tests = toml.load(ROOT / "tools" / "mutants.toml")["tests"]
    paths = [*dict.fromkeys(path for module in args.modules for path in tests_of(module, tests))]
    paths += ["-k", args.k]
    OPTIONS.extend(["-m", "not slow" if args.fast else "slow or not slow"])
    mutations = all_mutants(args.modules)
    print(f"{len(mutations)} mutants", flush=True)
    random.Random(args.seed).shuffle(mutations)
    mutations = mutations[: args.sample]
    with tempfile.NamedTemporaryFile() as log:
        results = run_mutants(args.modules, mutations, paths, args.seconds, log.name)
        report(args.modules, results, len(mutations))


if __name__ == "__main__":
    main()
