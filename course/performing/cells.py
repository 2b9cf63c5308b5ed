"""Loading a student's cells: as much of the notebook as its answers need, and no more.

    cells --parse--> statements --slice back from the answers' names--> run in order --> namespace

A graded call needs the definition of its answer and whatever that definition mentions: helpers, imports, constants,
found statement by statement through the names that the compiler itself resolves to globals; and what fills an object
that has such a name: `table.append(...)`, an item set in a loop, a function or class that registers itself there, a
function of the notebook that is given the object to fill. What the answer itself only adds to, such as the list in
which a decorator keeps times, is made and not filled. Everything else in the notebook (demonstrations, plots, training
loops, magics, shell commands) is not run. What is only reached through `globals()`, `exec` or another name of an object
is not followed.

An answer sees what it saw at its check: of a name that is bound by then, be it Python's own, what later cells make of
it is left out. A name that is bound only later is taken from there. To an answer another one is a helper as any other,
but that calls of an answer outside its cell, and stubs of it further down, change nothing.
"""

from __future__ import annotations
import __future__

import ast
import asyncio
import builtins
import contextlib
import dis
import functools
import inspect
import itertools
import linecache
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

from course.performing.exercise import Failure, Observation
from course.performing.perform import failure_of

ON_GLOBALS = {
    number: name
    for name, number in dis.opmap.items()
    if name.startswith(("LOAD_", "STORE_")) and name.endswith(("_NAME", "_GLOBAL", "_GLOBALS"))
}
MISSING = re.compile(r"name '(\w+)' is not defined")
ANY_MAGICS = re.compile(r"(?:\s*%%.*\n?)+")
MAGICS = re.compile(r"(?:\s*%%(?:time|capture|prun)\b.*\n?)+")  # what the rest of the cell binds is bound nevertheless
IN_PLACE = r"\w*[^\W_]_"  # as torch calls what changes a tensor
METHODS = re.compile(  # which change what they belong to
    r"append(?:left)?|extend(?:left)?|insert|pop(?:left|item)?|remove|discard|clear|sort|reverse|rotate|add|update"
    rf"|setdefault|{IN_PLACE}"
)
FUNCTIONS = re.compile(  # which change what they are given first
    r"setattr|delattr|heapify|heap(?:push|pop|pushpop|replace)|shuffle|insort(?:_left|_right)?|copyto|fill_diagonal"
    rf"|put|place|putmask|put_along_axis|at|{IN_PLACE}"
)
ADDING = re.compile(  # methods that do the same whatever has been added before: of containers, files and loggers
    r"append(?:left)?|extend(?:left)?|add|write|debug|info|warning|error|exception|critical|log"
)
SHELL = """
def display(*objects, **how): print(*objects)

class get_ipython:
    def __getattr__(self, name): return lambda *given, **how: None
"""  # what IPython brings to every notebook: an answer may show a number, or hold a magic, which does nothing here
BROUGHT = compile(SHELL, "<shell>", "exec", dont_inherit=True)
TIMED = re.compile(r"^([ \t]*)%time[ \t]+(?=[^\W\d])", re.MULTILINE)  # binds what the rest of the line binds
BUILTINS = frozenset({*dir(builtins), *BROUGHT.co_names})  # with what IPython brings
AS_TEXT = __future__.annotations.compiler_flag
IMPORTS = (ast.Import, ast.ImportFrom)
ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Accounts = tuple[frozenset[str], frozenset[str], frozenset[str], Mapping[str, frozenset[str]]]
LONGEST_REWRITTEN = 2**18  # characters of a cell: to rewrite megabytes would take the time that loading has


@dataclass(frozen=True, kw_only=True)
class CodeCell:
    """One code cell of the rebuilt notebook.

    answers  the names that it should define, with blanks between; a check cell has one, and no source
    """

    source: str
    answers: str = ""

    def has(self, name: str) -> bool:
        """Whether it holds or checks the answer with this name."""
        return name in self.answers.split()


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What loading found: the answer, or why there is none; and why names that it needs were not bound."""

    answer: Any = None
    failure: Failure | None = None
    lost: Mapping[str, Failure] = field(default_factory=dict)

    def explained(self, seen: Observation) -> Observation:
        """The same, where an answer missed a name whose statement had raised: then with what that had raised."""
        missing = MISSING.match(seen.error.message) if seen.error and seen.error.type == "NameError" else None
        why = self.lost.get(missing[1]) if missing else None
        return replace(seen, error=why) if why else seen


@dataclass(frozen=True, kw_only=True)
class _Statement:
    """One statement at the left margin: its cell, the source of that, and the names that it binds ("*": anything).

    changes   names whose objects it changes, as far as they have been made in the notebook
    calls     names that it calls for what they do, such as decorators: what their functions change, it changes
    gives     by names that it calls in any way: names that it gives them
    """

    node: ast.stmt
    file: str
    flags: int
    cell: int
    source: str
    binds: frozenset[str]
    changes: frozenset[str]
    calls: frozenset[str]
    gives: Mapping[str, frozenset[str]]

    @functools.cached_property
    def code(self) -> types.CodeType:
        """Compiled when it is needed, which most statements of a lesson are not. Raises SyntaxError."""
        return _compiled(self.node, self.file, self.flags)

    @functools.cached_property
    def reads(self) -> frozenset[str]:
        """Names in it on which something may depend, not those of what it does no more than add to."""
        return frozenset(_reads([*ast.walk(self.node)]))

    @property
    def text(self) -> str:
        """Its lines, those of its decorators included."""
        first = min([self.node.lineno, *[each.lineno for each in getattr(self.node, "decorator_list", [])]])
        return "\n".join(self.source.split("\n")[first - 1 : self.node.end_lineno])


def load(cells: Sequence[CodeCell], name: str) -> Loaded:
    """The answer called `name`. Never raises on whatever the cells do, short of ending the process."""
    return Parsed(cells).load(name)


class Parsed:
    """A notebook's statements, of which nothing has run: to be loaded from once, in a process of its own."""

    def __init__(self, cells: Sequence[CodeCell]) -> None:
        self._cells = cells
        self._failures: dict[int, Failure] = {}
        self._statements = list(_statements(cells, self._failures))
        self._owners = _owners(cells, self._statements)
        self._makes = [
            frozenset(made for made in makes if made not in self._owners or _counts(each, made, self._owners[made]))
            for each, makes in zip(self._statements, _makes(self._statements), strict=True)
        ]
        self._whole = _made_whole(self._statements)

    def load(self, name: str) -> Loaded:
        """The answer with this name, out of a module in which what it needs has run, in the notebook's order."""
        failures, lost = dict(self._failures), dict[str, Failure]()
        at, checked = self._checked(name), dict[str, Any]()
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module  # dataclasses and others look up the module of a class by its name
        exec(BROUGHT, module.__dict__)
        for statement in self._needed(name):
            if statement.cell > at and not checked:
                checked = dict(module.__dict__)
            try:
                _run(statement.code, module.__dict__)
            except BaseException as error:
                failure = failure_of(error, error.__traceback__)
                failures.setdefault(statement.cell, failure)
                lost = dict.fromkeys(statement.binds, failure) | lost
        if checked:  # whatever a later statement bound beside what was missing
            for each in BUILTINS & module.__dict__.keys() - checked.keys():
                del module.__dict__[each]
            module.__dict__.update(checked)
        if name in module.__dict__:
            return Loaded(answer=module.__dict__[name], lost=lost)
        own = [failures[at] for at, cell in enumerate(self._cells) if cell.has(name) and at in failures]
        missing = Failure(type="NameError", message=f"`{name}` is not defined in the notebook")
        return Loaded(failure=next(iter(own), missing))

    def imports(self, name: str) -> set[str]:
        """The modules that the statements which `name` needs import, wherever in them; some may be no modules."""
        nodes = [node for each in self._needed(name) for node in ast.walk(each.node)]
        found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return found

    def _needed(self, name: str) -> list[_Statement]:
        at, made = self._checked(name), [*zip(self._statements, self._makes, strict=True)]
        early = BUILTINS.union(*(makes for each, makes in made if each.cell <= at)) - {"*"}
        makes = [makes if each.cell <= at else makes - early for each, makes in made]
        return _slice(self._statements, makes, self._whole, name)

    def _checked(self, name: str) -> int:
        """The number of the cell after which the answer is looked at: its check's, else its own."""
        check = _checks(self._cells).get(name, -1)
        if self._owners.get(name, check) < check:
            return check
        return max((at for at, cell in enumerate(self._cells) if cell.has(name)), default=len(self._cells))


def source_of(module: str, name: str) -> str:
    """The part of a module's source that the definition of `name` needs, the definition included."""
    statements = list(_statements([CodeCell(source=module)], {}))
    return "\n\n\n".join(
        statement.text for statement in _slice(statements, _makes(statements), _made_whole(statements), name)
    )


# --- statements -------------------------------------------------------------------------------------


def _statements(cells: Sequence[CodeCell], failures: dict[int, Failure]) -> Iterator[_Statement]:
    """Every statement that may bind a name or change what has one.

    A cell that is no Python is remembered in `failures`.
    """
    flags = 0
    for number, cell in enumerate(cells):
        file = f"<cell of {cell.answers}>" if cell.answers and cell.source else f"<cell {number}>"
        try:
            source, tree = _parsed(without_cell_magics(cell), file)
        except Exception as error:  # SyntaxError, RecursionError, a null byte
            failures[number] = failure_of(error, error.__traceback__)
            continue
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        for node in itertools.chain.from_iterable(map(_apart, tree.body)):
            flags |= _future(node)
            binds, changes, calls, gives = _accounts(node)
            if binds or changes or calls or gives:
                yield _Statement(
                    node=node,
                    file=file,
                    flags=flags,
                    cell=number,
                    source=source,
                    binds=binds,
                    changes=changes,
                    calls=calls,
                    gives=gives,
                )


def _parsed(source: str, file: str) -> tuple[str, ast.Module]:
    """The cell in Python, and its tree. Only what is no Python yet needs IPython's rewriting, which takes longer.

    One case is both: `In [1]: x = 5`, pasted from a terminal, would annotate an item of In.
    """
    long = len(source) > LONGEST_REWRITTEN
    if long or not source.lstrip().startswith("In ["):
        with contextlib.suppress(SyntaxError):
            return source, ast.parse(source, file)
    if long:
        raise SyntaxError(f"a cell of more than {LONGEST_REWRITTEN:,} characters must be Python without magics")
    rewritten: str = TransformerManager().transform_cell(TIMED.sub(r"\1", source))  # type: ignore[no-untyped-call]
    return rewritten, ast.parse(rewritten, file)


def _apart(node: ast.stmt) -> list[ast.stmt]:
    """The statement; one for each name, where it deletes several: some of them may not have been made."""
    if not isinstance(node, ast.Delete):
        return [node]
    return [ast.copy_location(ast.Delete(targets=[target]), node) for target in node.targets]


def without_cell_magics(cell: CodeCell) -> str:
    """Without first lines such as `%%time`, which would make the rest a string; of an answer, whatever they are."""
    found = (ANY_MAGICS if cell.answers else MAGICS).match(cell.source)
    return cell.source[found.end() :] if found else cell.source


def _future(node: ast.stmt) -> int:
    """Compiler flags of `from __future__ import ...`, which hold for all later cells, as in a notebook."""
    if not isinstance(node, ast.ImportFrom) or node.module != "__future__":
        return 0
    features = [getattr(__future__, alias.name, None) for alias in node.names]
    return sum({feature.compiler_flag for feature in features if feature is not None})


def _compiled(node: ast.stmt, file: str = "", flags: int = 0) -> types.CodeType:
    """With `await` outside of functions, too, as a notebook runs it."""
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: types.CodeType = compile(ast.Module([node], []), file, "exec", flags=flags, dont_inherit=True)
    return code


def _run(code: types.CodeType, names: dict[str, Any]) -> None:
    """Run a statement; what it awaits, to its end."""
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def _binds(node: ast.stmt) -> frozenset[str]:
    """Names that the statement binds or deletes at the left margin, and names whose attributes or items it sets."""
    if isinstance(node, DEFINITIONS):
        return frozenset({node.name})
    if isinstance(node, IMPORTS):
        return frozenset(alias.asname or alias.name.partition(".")[0] for alias in node.names)
    if isinstance(node, (*ASSIGNMENTS, ast.Delete)):
        targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
        return frozenset(_root(part) for target in targets for part in ast.walk(target)) - {""}
    return frozenset() if isinstance(node, ast.Expr) else _bound_inside(node)


def _bound_inside(node: ast.stmt) -> frozenset[str]:
    """What an `if`, `for`, `with` or `try` binds, by the compiler's own account."""
    try:
        code = _compiled(node)
    except Exception:  # what cannot be compiled binds nothing
        return frozenset()
    return frozenset(name for operation, name in global_names(code) if operation.startswith("STORE"))


def _accounts(node: ast.stmt) -> Accounts:
    """What the statement binds, changes, calls and gives while it runs, as a _Statement says it.

    A call whose value nobody takes, and a decorator, is there for what it does; a class is known to those it is made
    from, which may do something then. Of a call whose value is taken, as in `x = fill(table)`, only what it surely
    fills is told.
    """
    binds = _binds(node)
    if isinstance(node, IMPORTS):
        return binds, frozenset(), frozenset(), {}
    if isinstance(node, DEFINITIONS):
        makers = set(map(_first, _made_from(node))) - {""}
        decorated = [part for each in node.decorator_list for part in ast.walk(each) if isinstance(part, ast.Call)]
        changes, calls = _acting(node.decorator_list, makers)
        return binds, changes, calls | makers, _gives(decorated)
    parts = [*ast.walk(node)]
    if isinstance(node, ast.Expr):
        changes, calls = _acting([node.value] if isinstance(node.value, ast.Call) else [], [])
    elif isinstance(node, ASSIGNMENTS):
        changes, calls = frozenset[str](), frozenset[str]()
    else:
        changes, calls = _inside(parts)
    walrus = {_first(part.target) for part in parts if isinstance(part, ast.NamedExpr)}
    called = [part for part in parts if isinstance(part, ast.Call)]
    return binds | walrus, changes | _filled(parts), calls, _gives(called)


def _made_from(node: ast.stmt) -> list[ast.expr]:
    """Of a class its bases, its metaclass and what else these are given."""
    return [*node.bases, *(each.value for each in node.keywords)] if isinstance(node, ast.ClassDef) else []


def _inside(parts: Sequence[ast.AST]) -> tuple[frozenset[str], frozenset[str]]:
    """What all statements among these parts change and call, those of functions too."""
    calls = [each.value for each in parts if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    decorators = [each for part in parts for each in getattr(part, "decorator_list", ())]
    return _acting([*calls, *decorators], map(_root, parts))


def _acting(called: Iterable[ast.expr], changed: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """What is changed besides by these calls: `a.b(c).d(e)` may change a; `a(b)(c)` calls a."""
    changes, calls = {*changed}, set[str]()
    for each in called:
        into = calls
        while isinstance(each, (ast.Call, ast.Attribute, ast.Subscript)):
            into = into if isinstance(each, ast.Call) else changes
            each = each.func if isinstance(each, ast.Call) else each.value
        into.add(_first(each))
    return frozenset(changes - {""}), frozenset(calls - {""})


def _gives(calls: Iterable[ast.Call]) -> dict[str, frozenset[str]]:
    """By names that are called: names that they are given."""
    found = dict[str, frozenset[str]]()
    for call in calls:
        if isinstance(call.func, ast.Name):
            given = map(_first, [*call.args, *(each.value for each in call.keywords)])
            found[call.func.id] = found.get(call.func.id, frozenset()).union(given) - {""}
    return found


def _filled(parts: Iterable[ast.AST]) -> frozenset[str]:
    """Names whose objects these parts of a statement change, as far as their own words say so."""
    found = set[str]()
    for part in parts:
        if isinstance(part, (ast.Attribute, ast.Subscript)):
            changes = isinstance(part, ast.Attribute) and METHODS.fullmatch(part.attr)  # called here, or handed on
            found.add(_first(part) if changes else _root(part))
        elif isinstance(part, ast.AugAssign):
            found.add(_first(part.target))
        elif isinstance(part, ast.Call):
            name = part.func.attr if isinstance(part.func, ast.Attribute) else _first(part.func)
            changed = [each.value for each in part.keywords if each.arg == "out"]
            changed += part.args[:1] if FUNCTIONS.fullmatch(name) else []
            found |= {_first(each) for each in changed}
    return frozenset(found - {""})


def _reads(parts: Sequence[ast.AST]) -> Iterator[str]:
    """Names that these parts look up for more than to add to what they hold, as `times.append(x)`, `times[key] = x`
    and, where a function declares it global, `calls += 1` do.
    """
    added = set[ast.AST]()
    for part in parts:
        call = part.value if isinstance(part, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and ADDING.fullmatch(call.func.attr):
            added.add(call.func.value)
        elif isinstance(part, ast.Assign):
            added |= {target.value for target in part.targets if isinstance(target, ast.Subscript)}
    for part in parts:
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part not in added:
            yield part.id


def _uses(code: types.CodeType) -> frozenset[str]:
    """Names that are looked up as globals, in this code or in any function inside it."""
    return _looked_up(code).union(*(_uses(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def _looked_up(code: types.CodeType) -> frozenset[str]:
    """The same in this code alone."""
    return frozenset(name for operation, name in global_names(code) if operation.startswith("LOAD"))


def global_names(code: types.CodeType) -> Iterator[tuple[str, str]]:
    """(operation, name) of each instruction that loads or stores a global name. `dis` would take ten times as long."""
    argument = 0
    for number, byte in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = argument << 8 | byte
        if number == dis.EXTENDED_ARG:
            continue
        if (operation := ON_GLOBALS.get(number)) is not None:
            yield operation, code.co_names[argument >> (operation == "LOAD_GLOBAL")]  # its last bit is no number
        argument = 0


def _root(node: ast.AST) -> str:
    """`a` of a target `a`, `a.b` or `a[0].c`; "" of everything that is not set or deleted."""
    return _first(node) if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)) else ""


def _first(node: ast.AST) -> str:
    """`a` of `a`, `a.b` or `a[0].c`; "" of everything else."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# --- the slice --------------------------------------------------------------------------------------


def _checks(cells: Sequence[CodeCell]) -> dict[str, int]:
    """By answer: the number of its last check cell."""
    return {cell.answers: number for number, cell in enumerate(cells) if cell.answers and not cell.source}


def _owners(cells: Sequence[CodeCell], statements: Sequence[_Statement]) -> dict[str, int]:
    """By answer: the number of its answer cell, where that really binds the name; of several the last above the check.

    Which of two definitions counts was decided where the notebook was rebuilt.
    """
    found, checks = dict[str, int](), _checks(cells)
    for each in statements:
        for name in each.binds:
            check = checks.get(name, -1)
            if cells[each.cell].has(name) and (each.cell < check or found.get(name, check) >= check):
                found[name] = each.cell
    return found


def _counts(each: _Statement, answer: str, own: int) -> bool:
    """Whether the statement may make this answer, whose cell is `own`: there whatever does so; elsewhere what binds,
    wraps or completes it, but for a stub further down.
    """
    if each.cell == own:
        return True
    if not isinstance(each.node, DEFINITIONS):
        parts = (part for part in ast.walk(each.node) if isinstance(part, (ast.Attribute, ast.Subscript)))
        return answer in each.binds or answer in map(_root, parts)
    return each.cell < own or answer not in each.binds or not _is_stub(each.node)


def _is_stub(node: ast.stmt) -> bool:
    """Whether a function in it is still to be written: it ends in `raise NotImplementedError(...)`."""
    ends = [part.body[-1] for part in ast.walk(node) if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef))]
    raised = [end.exc.func if isinstance(end.exc, ast.Call) else end.exc for end in ends if isinstance(end, ast.Raise)]
    return any(isinstance(each, ast.Name) and each.id == "NotImplementedError" for each in raised)


def _slice(
    statements: Sequence[_Statement],
    makes: Sequence[frozenset[str]],
    made_whole: frozenset[str],
    name: str,
) -> list[_Statement]:
    """The statements that `name` depends on, in the notebook's order."""
    needed, chosen = {name, "*"}, dict[int, frozenset[str]]()
    bound = _last_bound(statements, makes)
    grown = True
    while grown:
        again = {made: bound[made] for made in needed & bound.keys()}
        grown, over = False, _bound_anew(statements, makes, again, chosen)
        unread = made_whole.difference([name], *(statements[number].reads for number in chosen))
        for number, each in enumerate(statements):
            stays = isinstance(each.node, IMPORTS)
            wanted = [
                made
                for made in makes[number] & needed
                if made not in unread or made in each.binds or made in each.changes
                if stays or number >= over.get(made, 0)
            ]
            if number not in chosen and wanted:
                chosen[number] = _needs(each)
                needed |= chosen[number]
                grown = True
    return [statements[number] for number in sorted(chosen)]


def _made_whole(statements: Sequence[_Statement]) -> frozenset[str]:
    """Names that a statement binds and no function does. Where an answer only adds to what has such a name, what the
    functions that others call have added does not matter.
    """
    by_functions = set[str]()
    sources = {source for source in {each.source for each in statements} if "global" in source}  # searched once each
    for each in statements:
        if each.source in sources:
            parts = [*ast.walk(each.node)]
            added = {part.target for part in parts if isinstance(part, ast.AugAssign)}
            by_functions |= _declared(parts) & {_root(part) for part in parts if part not in added}
    return frozenset().union(*(each.binds for each in statements)) - by_functions


def _last_bound(statements: Sequence[_Statement], makes: Sequence[frozenset[str]]) -> dict[str, int]:
    """By name that was made before: the number of the last statement that binds it all the same.

    What is imported once more is what it was, with all that was set in it meanwhile.
    """
    found, made, imported = dict[str, int](), set[str](), set[str]()
    for number, each in enumerate(statements):
        names = _surely_binds(each.node) & makes[number]
        if isinstance(each.node, IMPORTS):
            for name in names & imported:
                found.pop(name, None)
            found |= dict.fromkeys(names & made - imported, number)
            imported |= names
        else:
            found |= dict.fromkeys(names & made, number)
            made |= makes[number]
    return found


def _bound_anew(
    statements: Sequence[_Statement],
    makes: Sequence[frozenset[str]],
    bound: Mapping[str, int],
    chosen: Mapping[int, frozenset[str]],
) -> dict[str, int]:
    """Those of these names of which nothing that is chosen can see what they were before they were bound there: a
    lesson's `product` is none of those that have a helper with this name.

    chosen  what each chosen statement needs, in functions that it defines too
    """
    over, at_once = {}, {n: _needs_at_once(statements[n], needs) for n, needs in chosen.items()}
    for name, at in bound.items():
        seen, left = set[str](), [needs for n, needs in at_once.items() if n <= at]
        while left and name not in seen:
            new = left.pop() - seen
            seen |= new
            left += [needs for n, needs in chosen.items() if n < at and not makes[n].isdisjoint(new)]
        if name not in seen:
            over[name] = at
    return over


def _makes(statements: Sequence[_Statement]) -> list[frozenset[str]]:
    """The names that each statement binds, or that have objects which it changes, itself or by a function it calls.

    Of what is imported only that counts which a statement sets itself: most calls of a module's functions change
    nothing in it, whatever a cell has set there.
    """
    here = frozenset().union(*(each.binds for each in statements if not isinstance(each.node, IMPORTS)))
    found, bound, imported = list[frozenset[str]](), [*map(_bound, statements)], [*map(_imported, statements)]
    in_force, shared = _InForce(statements, bound, here), set[str]().union(*imported)
    for number, each in enumerate(statements):
        if not isinstance(each.node, (*DEFINITIONS, *ASSIGNMENTS)):  # a loop may call what it defines
            in_force.bind(number)
        doers = in_force.doers({*each.calls, *each.gives})
        changes = (each.changes & here).union(
            *(doers[name].acts for name in each.calls if name in doers),
            *(doers[name].fills for name in each.gives if name in doers),
        )
        given = (names for name, names in each.gives.items() if name in doers and doers[name].takes)
        found.append(each.binds.union(changes - shared, _sets(each.node), *given))
        in_force.bind(number)
        shared -= bound[number]
        shared |= imported[number]
    return found


def _sets(node: ast.stmt) -> frozenset[str]:
    """Names, imported ones too, of whose objects a statement other than a definition sets attributes or items."""
    if isinstance(node, (*DEFINITIONS, *ASSIGNMENTS, *IMPORTS)):  # an assignment binds them
        return frozenset()
    parts = [*ast.walk(node)]
    calls = [part for part in parts if isinstance(part, ast.Call) and _first(part.func) in ("setattr", "delattr")]
    return frozenset([*map(_root, parts), *(_first(part.args[0]) for part in calls if part.args)]) - {""}


def _bound(statement: _Statement) -> frozenset[str]:
    """Names that the statement binds, and not names whose attributes or items it sets."""
    sets = isinstance(statement.node, (*ASSIGNMENTS, ast.Delete))
    return _surely_binds(statement.node) if sets else statement.binds


def _imported(statement: _Statement) -> frozenset[str]:
    """Of the names that the statement binds those that it imports, if only on a condition."""
    if isinstance(statement.node, (ast.Expr, ast.Delete, *DEFINITIONS, *ASSIGNMENTS)):
        return frozenset()
    imports = [part for part in ast.walk(statement.node) if isinstance(part, IMPORTS)]
    return statement.binds.intersection(name for each in imports for name in _binds(each))


class _InForce:
    """The definitions that names have as the notebook runs: of one that has none yet, its first."""

    def __init__(self, statements: Sequence[_Statement], bound: Sequence[frozenset[str]], here: frozenset[str]) -> None:
        self._statements, self._bound, self._here = statements, bound, here
        self._at = {name: number for number in reversed(range(len(bound))) for name in bound[number]}
        self._made, self._known = dict[int, _Doer](), dict[str, _Doer]()

    def bind(self, number: int) -> None:
        """From now on the names that this statement binds are what it makes of them."""
        for name in self._bound[number]:
            if name in self._known and self._at[name] != number:
                self._known.clear()
            self._at[name] = number

    def doers(self, names: Iterable[str]) -> Mapping[str, _Doer]:
        """What these names do where they are called now, and whatever they call in turn; others may be among them."""
        waiting, found = [*names], dict[str, _Doer]()
        while waiting:
            name = waiting.pop()
            if name in self._at and name not in self._known:
                found[name] = self._known[name] = self._doer(self._at[name])
                waiting += [*found[name].calls, *found[name].gives]
        called_first = [*found.values()][::-1]
        while sum(each.learn(self._known, self._here) for each in called_first):
            pass
        return self._known

    def _doer(self, number: int) -> _Doer:
        if number not in self._made:
            self._made[number] = _doer(self._statements[number], self._here)
        return replace(self._made[number])


@dataclass(kw_only=True)
class _Doer:
    """What a call of a function or class does besides giving a value, itself or by others that it calls.

    acts        names of objects that it may change, where it is called for what it does
    fills       names that it surely fills or binds
    takes       whether it fills what it is given
    parameters  names of what it is given, if it can take that
    calls       names that it calls for what they do
    gives       by names that it calls in any way: names that it gives them
    """

    acts: frozenset[str]
    fills: frozenset[str]
    takes: bool
    parameters: frozenset[str]
    calls: frozenset[str]
    gives: Mapping[str, frozenset[str]]

    def filled(self, names: frozenset[str]) -> frozenset[str]:
        """What a call fills that is given these names."""
        return self.fills | names if self.takes else self.fills

    def learn(self, others: Mapping[str, _Doer], here: frozenset[str]) -> bool:
        """Take over what these others do that it calls. Whether that was anything new."""
        before = len(self.acts), len(self.fills), self.takes
        self.acts = self.acts.union(*(others[name].acts for name in self.calls if name in others))
        for name, names in self.gives.items():
            if name in others:
                filled = others[name].filled(names)
                self.fills |= (filled - self.parameters) & here
                self.takes |= not filled.isdisjoint(self.parameters)
        return before != (len(self.acts), len(self.fills), self.takes)


def _doer(statement: _Statement, here: frozenset[str]) -> _Doer:
    """What a function or class does itself."""
    node, parts = statement.node, [*ast.walk(statement.node)]
    takes = isinstance(node, ast.FunctionDef) or isinstance(getattr(node, "value", None), ast.Lambda)
    parameters = frozenset(part.arg for part in parts if isinstance(part, ast.arg))
    filled, (changes, calls) = _filled(parts), _inside(parts)
    acts, makers = changes & here, map(_first, _made_from(node))
    return _Doer(
        acts=acts and acts & _needs(statement),
        fills=_declared(parts) | ((filled - parameters) & here),
        takes=takes and not filled.isdisjoint(parameters),
        parameters=parameters if takes else frozenset(),
        calls=calls.union(makers) - {""},
        gives=_gives([part for part in parts if isinstance(part, ast.Call)]),
    )


def _declared(parts: Iterable[ast.AST]) -> frozenset[str]:
    """Names that functions among these parts declare global."""
    return frozenset(name for part in parts if isinstance(part, ast.Global) for name in part.names)


def _surely_binds(node: ast.stmt) -> frozenset[str]:
    """Names that the statement binds whenever it does not raise."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if node.value else []
        parts = [part for target in targets for part in ast.walk(target)]
        return frozenset(part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    return _binds(node) if isinstance(node, (*DEFINITIONS, *IMPORTS)) else frozenset()


def _needs_at_once(statement: _Statement, needs: frozenset[str]) -> frozenset[str]:
    """Of what a statement needs, what it may look up when it runs: not what a function does that nothing decorates."""
    node = statement.node
    if not needs or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.decorator_list:
        return needs
    return _looked_up(statement.code) & needs


def _needs(statement: _Statement) -> frozenset[str]:
    """What it may look up; of annotations, too, that `from __future__ import annotations` makes texts: somebody may
    read them, as dataclasses do.
    """
    flags = statement.flags
    try:
        return _uses(_compiled(statement.node, flags=flags & ~AS_TEXT) if flags & AS_TEXT else statement.code)
    except Exception:  # it cannot be compiled: running it will say so
        return frozenset()
