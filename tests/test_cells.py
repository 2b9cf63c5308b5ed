"""How much of a notebook is run to get at one answer."""

from __future__ import annotations

import dis
import inspect
import sys
import types
import typing

import pytest

from course.performing.cells import LONGEST_REWRITTEN, CodeCell, global_names, load, source_of
from course.performing.exercise import Failure, Observation


def loaded(monkeypatch, *sources: str, answer: str):
    """The answer `f` of a notebook whose answer cell is the last one."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # put back afterwards
    cells = [CodeCell(source=source) for source in sources]
    return load([*cells, CodeCell(source=answer, answers="f")], "f")


def test_an_answer_is_loaded_with_the_helpers_constants_and_imports_that_it_uses(monkeypatch):
    cells = ("from math import sqrt\nimport math as m", "SCALE = m.floor(2.5)", "def g(x): return SCALE * sqrt(x)")
    found = loaded(monkeypatch, *cells, answer="def f(x):\n    def h(): return g(x)\n    return h()")
    assert found.answer(9.0) == 6.0


def test_demonstrations_are_not_run(monkeypatch, capsys):
    cells = ("print('slow')\nx = print('slow')", "%matplotlib inline\n!ls /", "for x in [1]:\n    print(x)")
    assert loaded(monkeypatch, *cells, answer="def f(x): return x\nprint(f(1))\nf.x").answer(3) == 3
    assert capsys.readouterr().out == ""


def test_statements_that_complete_a_name_are_run_in_order(monkeypatch):
    cells = ("TABLE = {}", "TABLE['a'] = 1", "TABLE['a'] += 1", "if True:\n    OTHER = 5\nelse:\n    OTHER = 6")
    assert loaded(monkeypatch, *cells, answer="def f(): return TABLE['a'] + OTHER").answer() == 7


FILLED = {
    "appended": "TABLE.append(7)",
    "appended in a loop": "for n in (6, 7):\n    TABLE.append(n)",
    "an item set in a loop": "TABLE += [0]\nfor at, n in enumerate([7]):\n    TABLE[at] = n",
    "under a condition": "if not TABLE:\n    TABLE.insert(0, 7)",
    "a call of what a call gives": "TABLE.extend([]) or TABLE\nTABLE.__iadd__([1]).append(7)",
    "with": "import contextlib\nwith contextlib.suppress(KeyError):\n    TABLE.append(7)",
    "an item deleted": "TABLE += [7, 8]\ndel TABLE[1]",
    "a function that fills": "def put(n):\n    TABLE.append(n)\nput(7)",
    "a decorator that fills": "def keep(f):\n    TABLE.append(f())\n    return f\n@keep\ndef g(): return 7",
    "a decorator with a name": "def of(n):\n    def keep(f): TABLE.append(n)\n    return keep\n@of(7)\ndef g(): ...",
    "in a list": "[TABLE.append(n) for n in (6, 7)]",
    "in an assertion": "assert TABLE.append(7) is None",
    "while its value is taken": "TABLE += [7, 8]\nlast = TABLE.pop()",
    "given to a function that fills": "def put(table, n): table.append(n)\nput(TABLE, 7)",
    "given by name": "def put(n, table):\n    table += [n]\n    return n\nlast = put(7, table=TABLE)",
    "a function that fills, with a value": "def put(n):\n    TABLE.append(n)\n    return n\nlast = [put(7)]",
    "an object that registers itself": "class A:\n    def __init__(self): TABLE.append(7)\na = A()",
    "a library's function": "import heapq\nTABLE += [9, 8]\nheapq.heappush(TABLE, 7)\nTABLE.reverse()",
    "a global": "def put():\n    global TABLE\n    TABLE = [7]\nput()",
    "a class below a subclass": (
        "class A:\n    def __init_subclass__(cls): TABLE.append(7)\nclass B(A): ...\nTABLE.clear()\nclass C(B): ..."
    ),
    "a walrus": "print((TABLE := [7]))",
    "in place, with a value": "import torch\nTABLE = torch.zeros(1)\nlast = TABLE.fill_(7)",
    "in place, by a function": "import torch\nTABLE = torch.zeros(1)\ntorch.nn.init.constant_(TABLE, 7)",
    "as out": "import torch\nTABLE = torch.zeros(1)\nlast = torch.add(TABLE, 7, out=TABLE)",
    "copied into": "import numpy\nTABLE = numpy.zeros(1)\nnumpy.copyto(TABLE, 7)",
    "put into": "import numpy\nTABLE = numpy.zeros(1)\nnumpy.put(TABLE, 0, 3)\nnumpy.add.at(TABLE, [0, 0], 2)",
    "given to a decorator": "def of(table): return lambda f: table.append(7)\n@of(TABLE)\ndef g(): ...",
    "a function that calls one that fills": "def put():\n    TABLE.append(7)\ndef main(): put()\nmain()",
    "given on": "def put(table, n): table.append(n)\ndef main(table):\n    put(table, 7)\nmain(TABLE)",
    "given by a function": "def put(table, n): table.append(n)\ndef main(): put(TABLE, 7)\nmain()",
    "a global, two calls deep": "def a():\n    global TABLE\n    TABLE = [7]\ndef b(): return a()\ndef c(): b()\nc()",
    "functions that call each other": (
        "def a(n): return b(n - 1) if n else TABLE.append(7)\ndef b(n): return a(n - 1) if n else None\na(2)"
    ),
    "a lambda that fills": "put = lambda table, n: table.append(n)\nput(TABLE, 7)",
    "a method handed on": "list(map(TABLE.append, [7]))",
    "a metaclass that registers": (
        "class M(type):\n    def __init__(self, *given):\n        super().__init__(*given)\n"
        "        TABLE.append(7)\nclass A(metaclass=M): ..."
    ),
    "a class whose subclasses register": ("class B:\n    def __init_subclass__(cls): TABLE.append(7)\nclass A(B): ..."),
    "an import above": "try:\n    import TABLE\nexcept ImportError:\n    TABLE = []\nTABLE = []\nTABLE.append(7)",
    "a function with an attribute": "def put(table): table.append(7)\nput.calls = 0\nput(TABLE)",
    "a method as a decorator": "@TABLE.append\ndef g(): ...\nTABLE[0] = g\nTABLE.append(7)",
}


@pytest.mark.parametrize("filled", FILLED.values(), ids=FILLED)
def test_what_fills_an_object_is_run(monkeypatch, filled):
    assert loaded(monkeypatch, "TABLE = []", filled, answer="def f(): return TABLE[-1]").answer() == 7


IN_FORCE = {
    "a function that fills": ("TABLE = []\ndef put(table): table.append(7)\nput(TABLE)", "def put(table): ..."),
    "a decorator": ("TABLE = []\ndef put(g):\n    TABLE.append(g())\n@put\ndef g(): return 7", "def put(g): return g"),
    "a global": ("def put():\n    global TABLE\n    TABLE = [7]\nput()", "def put():\n    global T\n    T = 8\nput()"),
    "a function that calls it": (
        "TABLE = []\ndef main(): put()\ndef put(): TABLE.append(7)\nmain()",
        "def put(): print('slow')\nmain()",
    ),
    "a class": (
        "TABLE = []\nclass put:\n    def __init_subclass__(cls): TABLE.append(7)\nclass A(put): ...",
        "class put: ...\nclass A(put): ...",
    ),
    "in the statement that calls it": (
        "TABLE = []\nfor n in (6, 7):\n    def put():\n        global TABLE\n        TABLE = [n]\n    put()",
        "put = None",
    ),
}


@pytest.mark.parametrize(("filled", "anew"), IN_FORCE.values(), ids=IN_FORCE)
@pytest.mark.parametrize("below", [False, True])
def test_a_call_does_what_its_name_stood_for_then(monkeypatch, capsys, filled, anew, below):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    answer = CodeCell(source="def f(): return TABLE[-1]", answers="f")
    after = [answer, CodeCell(source=anew)] if below else [CodeCell(source=anew), answer]
    assert load([CodeCell(source=filled), *after], "f").answer() == 7
    assert capsys.readouterr().out == ""


SETTINGS = (
    "math.seven = 7",
    "math.seven += 1",
    "math.tables[0] = 7",
    "def f():\n    math.seven = 7\nx = f()",
    "try:\n    import math\nexcept ImportError: ...",
    "if True:\n    math.seven = 7",
)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("below", [False, True])
def test_what_is_set_in_a_module_makes_no_change_of_its_calls(monkeypatch, capsys, setting, below):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr("math.tables", [0], raising=False)
    monkeypatch.setattr("math.seven", 0, raising=False)
    calls = ("math.floor(print(1))", "for n in [2]:\n    math.floor(print(n))", "def g(): math.floor(3)\ng(print(3))")
    answer = CodeCell(source="def h(): return math.floor(7.5)", answers="h")
    cells = [CodeCell(source=source) for source in ("import math", *([] if below else [setting]), *calls)]
    assert load([*cells, answer, *([CodeCell(source=setting)] if below else [])], "h").answer() == 7
    assert capsys.readouterr().out == ""


IN_ITSELF = (
    "math.seven = 7",
    "if not math.seven:\n    math.seven = 7",
    "setattr(math, 'seven', 7)",
    "for n in (6, 7):\n    setattr(math, 'seven', n)",
)


@pytest.mark.parametrize("setting", IN_ITSELF)
def test_what_is_set_in_a_module_itself_is_run(monkeypatch, setting):
    monkeypatch.setattr("math.seven", 0, raising=False)
    assert loaded(monkeypatch, f"import math\n{setting}", answer="def f(): return math.seven").answer() == 7


def test_classes_are_known_to_those_that_they_are_made_from(monkeypatch):
    cells = ("class Node: ...", "class Add(Node): ...", "from functools import singledispatch")
    cells += ("@singledispatch\ndef g(x): return 1", "@g.register\ndef _(x: int): return 2")
    answer = "def f(): return [each.__name__ for each in Node.__subclasses__()], g(3)"
    assert loaded(monkeypatch, *cells, answer=answer).answer() == (["Add"], 2)


def test_a_call_that_changes_nothing_that_is_needed_is_not_run(monkeypatch, capsys):
    cells = ("import math\nLOG = []\ndef show(x):\n    LOG.append(x)\n    print(x)", "def g(x): return math.floor(x)")
    cells += (
        "show(g(1.5))",
        "math.floor(print(2))",
        "@show\ndef h(): ...",
        "f.calls = print(3)",
        "LOG.append(print(4))",
        "x = show(print(5))",
        "x = [g(print(6)), LOG.pop()]",
    )
    assert loaded(monkeypatch, *cells, answer="def f(x): return g(x)\nshow(f(2))").answer(3.5) == 3
    assert capsys.readouterr().out == ""


WRAPPED = """
import functools, logging
log, TIMES, SEEN, CALLS = logging.getLogger(), [], {}, 0
def timed(g):
    @functools.wraps(g)
    def inner(*given):
        global CALLS
        CALLS += 1
        SEEN[g.__name__] = given
        log.debug(g.__name__)
        TIMES.append(g(*given))
        return g(*given)
    return inner
"""


def test_what_an_answer_only_adds_to_is_not_filled_for_it(monkeypatch, capsys):
    cells = (
        WRAPPED,
        "@timed\ndef g(x): return SLOW",
        "SLOW = print('slow')",
        "def train(): g(print('train'))\ntrain()",
    )
    assert loaded(monkeypatch, *cells, answer="@timed\ndef f(x): return x\nlast = f(1)").answer(3) == 3
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("read", ["len(TIMES)", "TIMES.pop()", "TIMES[0] + 1"])
def test_what_an_answer_also_reads_is_filled_for_it(monkeypatch, read):
    cells = ("TIMES = []", "def train(): TIMES.append(0)\ntrain()")
    answer = f"def f():\n    TIMES.append(g())\n    return len(TIMES)\ndef g(): return {read}"
    assert loaded(monkeypatch, *cells, answer=answer).answer() >= 1


def test_what_a_function_makes_is_made_for_an_answer_that_adds_to_it(monkeypatch):
    cells = ("TIMES = None", "def start():\n    global TIMES\n    TIMES = [2]\nstart()")
    assert loaded(monkeypatch, *cells, answer="def f(x):\n    TIMES.append(x)\n    return x").answer(3) == 3


def test_a_cell_that_raises_does_not_stop_the_next(monkeypatch):
    assert loaded(monkeypatch, "def broken(:", "y = 1 / 0", answer="def f(): return 4\ny").answer() == 4


def test_a_syntax_error_in_the_answer_is_told(monkeypatch):
    failure = loaded(monkeypatch, "x = 1", answer="def f(:").failure
    assert (failure.type, "<cell of f>" in failure.message) == ("SyntaxError", True)


def test_an_exception_of_the_answer_cell_is_told(monkeypatch):
    failure = loaded(monkeypatch, answer="f = int('x')").failure
    said, lines = "invalid literal for int() with base 10: 'x'", ("line 1, in <module>: f = int('x')",)
    assert failure == Failure(type="ValueError", message=said, where=lines)


def test_an_answer_cell_without_the_answer_is_told(monkeypatch):
    failure = loaded(monkeypatch, answer="def F(): pass").failure
    assert failure == Failure(type="NameError", message="`f` is not defined in the notebook")


@pytest.mark.parametrize(
    "completing",
    [
        "if not hasattr(f, 'of'): f.of = lambda: 7",
        "for k in (1, 7): f.of = lambda k=k: k",
        "with open('/dev/null'): f.of = lambda: 7",
        "try: f.of = lambda: 7\nexcept ImportError: f.of = None",
    ],
)
def test_what_completes_an_answer_counts_inside_of_other_statements(monkeypatch, completing):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    cells = [
        CodeCell(source="def f(): return f.of()", answers="f"),
        CodeCell(source=completing),
        CodeCell(source="", answers="f"),
    ]
    assert load(cells, "f").answer() == 7


@pytest.mark.parametrize("magic", ["%%time\n", "%%capture out\n\n%%time\n", "\n%%prun -q\n", "%time\n!ls\n"])
def test_magics_do_not_hide_an_answer_or_a_helper(monkeypatch, magic):
    assert loaded(monkeypatch, f"{magic}TWO = 2", answer=f"{magic}def f(): return TWO").answer() == 2


OF_THE_SHELL = {
    "a line that is timed": ("%time TWO = 2", ""),
    "a line that is timed, inside": ("", "%time TWO = 2"),
    "a show": ("TWO = 2", "display(TWO, clear=True)"),
    "a command inside": ("TWO = 2", "!true"),
    "where it runs": ("if 'google.colab' in str(get_ipython()):\n    %cd drive\nelse:\n    %cd /\n    TWO = 2", ""),
    "await": ("async def two(): return 2\nTWO = await two()", ""),
    "await of time": ("import asyncio\nTWO = await asyncio.sleep(0.001, 2)", ""),
    "async for": ("async def two(): yield 2\nasync for TWO in two(): pass", ""),
    "async list": ("async def two(): yield 2\nTWO = [each async for each in two()][0]", ""),
}


@pytest.mark.parametrize(("above", "inside"), OF_THE_SHELL.values(), ids=OF_THE_SHELL)
def test_what_only_a_notebook_has_is_no_loss(monkeypatch, above, inside):
    assert loaded(monkeypatch, above, answer=f"def f():\n    {inside}\n    return TWO").answer() == 2


def test_a_cell_that_is_written_to_a_file_binds_nothing(monkeypatch):
    assert loaded(monkeypatch, "x = 2", "%%writefile x.py\nx = 3", answer="def f(): return x").answer() == 2


LATER = {
    "its name": ("", "def f(): return 7", "def f(): return 8"),
    "a constant": ("", "h = 7\ndef f(): return h", "h, heads = 1600, 25"),
    "a helper": ("def step(x): return x + 1", "def f(): return step(6)", "def step(x): return 8"),
    "an import": ("from math import floor", "def f(): return floor(7.5)", "from math import ceil as floor"),
    "a star": ("def floor(x): return 7", "def f(): return floor(8)", "from math import *"),
    "a name beside a missing one": ("h = 3", "def f(): return h + heads", "h, heads = 1600, 4"),
    "a name above a missing one": ("h = 3", "def f(): return h + heads", "h = 2\nheads = 4"),
    "what a table holds": ("TABLE = [7]", "def f(): return TABLE[-1]", "TABLE.append(8)"),
    "the index of a loop": ("n = 7", "def f(): return n", "for n in range(3): ..."),
    "a builtin": ("", "def f(): return sum([3, 4])", "sum = 0.0\nfor v in [1.0]:\n    sum += v"),
    "a builtin by a star": ("", "def f(): return sum([3, 4])", "from torch import *"),
    "what IPython brings": ("", "def f():\n    display(1)\n    return 7", "display = None"),
    "a builtin beside a missing name": ("", "def f(): return sum([heads, 4])", "sum, heads = 0, 3"),
    "a builtin bound and deleted": ("sum, len = 5, 5", "del sum, len\ndef f(): return len('1234567')", ""),
    "a builtin deleted beside another": ("max = len = 5", "del max\ndel min, len\ndef f(): return len('1234567')", ""),
}


@pytest.mark.parametrize(("above", "answer", "below"), LATER.values(), ids=LATER)
def test_what_later_cells_make_of_a_name_does_not_change_what_is_graded(monkeypatch, above, answer, below):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    cells = [CodeCell(source=above), CodeCell(source=answer, answers="f"), CodeCell(source=below)]
    assert load(cells, "f").answer() == 7


BOUND_ANEW = {
    "a function": "def n(): return 7",
    "a constant": "n = 7",
    "one of several": "m, (n, *_) = 5, (7, 8)",
    "with a type": "n: int = 7",
    "a class": "class n: at = 7",
    "an import": "from math import pi as n",
    "a function that calls itself": "def n(x): return n(x - 1) if x else 0",
}


@pytest.mark.parametrize("bound", BOUND_ANEW.values(), ids=BOUND_ANEW.keys())
@pytest.mark.parametrize("answer", ["{}\ndef f(): return n", "def f(): return n\n{}"])
def test_what_a_name_was_before_it_is_bound_anew_is_not_run(monkeypatch, capsys, bound, answer):
    above = (
        "n = print('slow')",
        "def g(x): n.append(x)\ng(print('slow'))",
        "for n in [1]: print('slow')",
        "other = 8\nprint(n)",
    )
    assert loaded(monkeypatch, *above, answer=answer.format(bound)).answer() is not None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "bound",
    [
        "n = n + [7]",
        "n += [7]",
        "m = n\nn = m + [7]",
        "def more(): return n + [7]\nn = more()",
        "def more(): return n + [7]\ndef most(): return more()\n@lambda make: make()\ndef n(): return most()",
        "def more(given=n): return given + [7]\nn = 5\nn = more()",
        "class More: given = n + [7]\nn = More.given",
        "def more(): return n + [7]\ntable = [more]\nn = table[0]()",
        "if not n:\n    n = []\nn.append(7)",
        "def more(): return n\nold = more()\nn = [*old, 7]",
    ],
)
def test_what_a_name_was_before_is_run_where_that_is_used(monkeypatch, bound):
    assert loaded(monkeypatch, "n = [1]", "n.append(2)", answer=f"{bound}\ndef f(): return n").answer() == [1, 2, 7]


def test_a_module_that_is_imported_once_more_keeps_what_was_imported_into_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "xml.dom.minidom", raising=False)
    cells = ("import xml.dom.minidom", "import xml")
    assert loaded(monkeypatch, *cells, answer="import xml\ndef f(): return xml.dom.minidom").answer() is not None


@pytest.mark.parametrize("again", ["import xml", "import xml\nxml = xml", "xml = 5\nimport xml"])
def test_what_was_set_in_a_module_stays_where_it_is_imported_once_more(monkeypatch, again):
    import xml

    monkeypatch.setattr(xml, "seven", 0, raising=False)
    cells = ("import xml", "xml.seven = 7")
    assert loaded(monkeypatch, *cells, answer=f"{again}\ndef f(): return xml.seven").answer() == 7


def test_what_stands_above_the_check_counts(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    cells = [CodeCell(source="h = 2\ndef f(): return h", answers="f g"), CodeCell(source="h = 7")]
    assert load([*cells, CodeCell(source="", answers="f"), CodeCell(source="h = 8")], "f").answer() == 7


COMPLETED = {
    "an attribute": ("def f(): return f.n", "f.n = 7"),
    "a method": ("class f:\n    def __new__(cls): return cls.run()", "f.run = staticmethod(lambda: 7)"),
    "a decorator": (
        "class f:\n    def __new__(cls): return cls.run()\ndef of(k): return lambda g: setattr(k, 'run', g)",
        "@of(f)\ndef run(): return 7",
    ),
    "wrapped": ("def f(): return 6", "f = (lambda g: lambda: g() + 1)(f)"),
    "another name for it": ("def f(): return 6", "def g(): return 7\nf = g"),
    "defined anew": ("def f(): return 6", "def f(): return 7"),
    "a class that is opened again": ("class f: n = 7", "class f(f):\n    def __new__(cls): return cls.n"),
    "the old one under a new name": ("def f(): return 6", "first = f\ndef f(): return first() + 1"),
    "the old one as a default": ("def f(): return 6", "def f(first=f): return first() + 1"),
    "decorated by the old one": (
        "class f:\n    def __init__(self, g=print): self.g = g",
        "@f\ndef f(): return 7\nf = f.g",
    ),
    "twice": ("n = 4\ndef f(): return n", "f = (lambda g: lambda: g() + 1)(f)\nfirst = f\ndef f(): return first() + 2"),
    "a stub again": ("def f(): return 7", "def f(): raise NotImplementedError"),
    "a stub of a class": ("def f(): return 7", "class f:\n    def run(self): raise NotImplementedError('u.f')"),
    "a demonstration": ("def f(): return 7", "f()\nx = f()\nf.__call__(print('slow'))"),
}


@pytest.mark.parametrize(("own", "between"), COMPLETED.values(), ids=COMPLETED)
def test_what_completes_an_answer_before_its_check_counts(monkeypatch, capsys, own, between):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    cells = [CodeCell(source=own, answers="f"), CodeCell(source=between), CodeCell(source="", answers="f")]
    assert load([*cells, CodeCell(source="f.n = 8\nf = len")], "f").answer() == 7
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("own", "between"), [each for what, each in COMPLETED.items() if "stub" not in what and "demo" not in what]
)
@pytest.mark.parametrize("later", ["def g(): return f()", "f = 8\ndef g(): return 7"])
def test_another_answer_is_for_an_answer_what_its_check_saw(monkeypatch, own, between, later):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    cells = [CodeCell(source=own, answers="f"), CodeCell(source="", answers="f"), CodeCell(source=between)]
    cells += [CodeCell(source=later, answers="g"), CodeCell(source="", answers="g"), CodeCell(source="f = None")]
    assert load(cells, "g").answer() == 7


@pytest.mark.parametrize("own", ["class f: n = 7\nn = f()\nprint('slow')", "def f(): raise NotImplementedError('u.f')"])
def test_what_an_answer_is_made_from_may_stand_above_the_cell_that_holds_it(monkeypatch, capsys, own):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    held = "first = f\ndef f(): return getattr(first, 'n', 7)"
    cells = [CodeCell(source=own), CodeCell(source=held, answers="f"), CodeCell(source="", answers="f")]
    assert load(cells, "f").answer() == 7
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("answer", ["f", "g"])
def test_a_stub_below_the_cell_that_holds_an_answer_is_none(monkeypatch, answer):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    cells = [CodeCell(source="def f(): return 7", answers="f"), CodeCell(source="def f(): raise NotImplementedError")]
    cells += [CodeCell(source="", answers="f"), CodeCell(source="def g(): return f()", answers="g")]
    assert load(cells, answer).answer() == 7


@pytest.mark.parametrize("sources", [(8, 7, ""), (7, "", 8), ("", 8, 7)], ids=str)
def test_of_copied_answer_cells_the_last_above_the_check_counts(monkeypatch, sources):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    cells = [CodeCell(source=n and f"h = {n}\ndef f(): return h", answers="f") for n in sources]
    assert load(cells, "f").answer() == 7


def test_two_answers_have_each_its_own_helper(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    cells = [
        CodeCell(source=f"def h(): return {n}\ndef {name}(): return h()", answers=name) for n, name in enumerate("fg")
    ]
    assert [load(cells, name).answer() for name in "fg"] == [0, 1]


def test_annotations_are_postponed_for_all_cells_after_the_import(monkeypatch):
    found = loaded(monkeypatch, "from __future__ import annotations", answer="def f(x: Unknown) -> Unknown: return x")
    assert found.answer(1) == 1


def test_what_is_annotated_as_text_brings_what_the_text_names(monkeypatch):
    cells = ("from __future__ import annotations", "from typing import ClassVar\nfrom dataclasses import dataclass")
    answer = "@dataclass\nclass f:\n    names: ClassVar[list[str]] = ['a']\n    n: int"
    assert loaded(monkeypatch, *cells, answer=answer).answer(3).names == ["a"]


def test_an_answer_that_misses_a_name_is_told_why_it_was_not_bound(monkeypatch):
    found = loaded(monkeypatch, "half = 1 / 0", "half += 1", answer="def f(): return half")
    half, other = (
        Observation(error=Failure(type="NameError", message=f"name '{name}' is not defined")) for name in ("half", "x")
    )
    assert found.explained(half).error.message == "division by zero"
    assert [found.explained(each) for each in (other, Observation())] == [other, Observation()]


def test_a_dataclass_can_look_up_its_module(monkeypatch):
    answer = "from dataclasses import dataclass\n\n@dataclass\nclass f:\n    x: 'int' = 3"
    assert loaded(monkeypatch, answer=answer).answer().x == 3


def test_the_source_of_a_definition_holds_what_it_needs_and_no_more():
    module = "import os\nimport math\n\nTWO = 2\n\n\n@math.cos\ndef g(): return TWO\n\n\ndef h(): return os\n"
    assert source_of(module, "g") == "import math\n\n\nTWO = 2\n\n\n@math.cos\ndef g(): return TWO"


def test_a_line_pasted_from_a_terminal_is_read_without_its_prompt() -> None:
    cells = [CodeCell(source="In [1]: x = 5"), CodeCell(source="def f(): return x", answers="f")]
    assert load(cells, "f").answer() == 5


def test_a_cell_of_many_lines_is_read_as_python_alone() -> None:
    lines = "# many\n" * (LONGEST_REWRITTEN // 7 + 1) + "x = 5\n"
    answer = CodeCell(source="def f(): return x", answers="f")
    assert load([CodeCell(source=lines), answer], "f").answer() == 5
    told = load([CodeCell(source=f"{lines}%matplotlib inline\n{answer.source}", answers="f")], "f").failure
    assert told is not None
    assert told.message == "a cell of more than 262,144 characters must be Python without magics"


MANY = "\n".join(f"a{number} = b{number}" for number in range(70_000))  # their numbers take three bytes


@pytest.mark.parametrize("source", [*map(inspect.getsource, (inspect, typing, dis)), MANY])
def testglobal_names_are_those_that_the_disassembler_shows(source):
    codes = [compile(source, "", "exec")]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        shown = [(step.opname, step.argval) for step in dis.get_instructions(code)]
        stores = [(name, what) for name, what in shown if name in ("STORE_NAME", "STORE_GLOBAL")]
        loads = [
            (name, what)
            for name, what in shown
            if name.startswith("LOAD") and name.endswith(("_NAME", "_GLOBAL", "_GLOBALS"))
        ]
        assert sorted(global_names(code)) == sorted(stores + loads)
