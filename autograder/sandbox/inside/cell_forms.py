"""Statements by their form: what the reading of a cell (`cell_names`) asks of each."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from collections.abc import Iterable, Iterator

RANDOM = re.compile(
    r"(?:rand|randn|randint|randperm|random|normal|uniform|bernoulli|multinomial|poisson|exponential|geometric|cauchy"
    r"|log_normal|shuffle|choices?|sample|gauss|getrandbits|dropout|kaiming|xavier|trunc_normal|orthogonal)\w*"
    r"|feature_alpha_dropout|alpha_dropout|native_dropout|standard_normal|permut\w+|\w*seed\w*|\w*rng_state\w*|init"
    r"|Linear|LazyLinear|Bilinear|(?:Lazy)?Conv\w+|Embedding\w*|RNN\w*|LSTM\w*|GRU\w*|Transformer\w*|Dropout\w*"
    r"|MultiheadAttention|DataLoader|RandomSampler|random_split|reset_parameters|RReLU|rrelu|gumbel_softmax"
    r"|scaled_dot_product_attention|GPT|mlp"
)
DRAW_NOTHING = ("course.lessons.figures", "course.lessons.widgets", "course.lessons.graph", "course.lessons.data")
KNOWN = frozenset({"torch", "numpy", "matplotlib", "course", "rich", "ipywidgets", "IPython", *sys.stdlib_module_names})


def walk(statements: Iterable[ast.stmt]) -> Iterator[ast.AST]:
    """All parts of these statements."""
    return itertools.chain.from_iterable(map(nodes, statements))


@functools.lru_cache(maxsize=4096)
def nodes(statement: ast.stmt) -> tuple[ast.AST, ...]:
    """All parts of one statement; it is asked for them a few times."""
    return tuple(ast.walk(statement))


def words(node: ast.AST) -> set[str]:
    """Names and attributes that stand in a node itself."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.alias):
        return set(node.name.split("."))
    if isinstance(node, ast.ImportFrom):
        return set((node.module or "").split("."))
    return set()


def modules(node: ast.Import | ast.ImportFrom) -> set[str]:
    """The first name of each module that is imported."""
    whole = [each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.partition(".")[0] for name in whole}


def dotted(node: ast.Attribute) -> str:
    """`a.b`; "" of anything longer."""
    return f"{node.value.id}.{node.attr}" if isinstance(node.value, ast.Name) else ""


def root(node: ast.AST) -> str:
    """`a` of `a.b[0]()`; "" where no name stands there."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def runs_inside(statement: ast.stmt) -> bool:
    """Whether its functions may be called at once: by a decorator, or by the class that a class is derived from."""
    return any(
        getattr(node, "decorator_list", None) or (isinstance(node, ast.ClassDef) and (node.bases or node.keywords))
        for node in nodes(statement)
    )


def is_import(statement: ast.stmt) -> bool:
    """Whether it is an import."""
    return isinstance(statement, (ast.Import, ast.ImportFrom))


def surely_binds(statement: ast.stmt) -> frozenset[str]:
    """Names that it binds whenever it ends without an exception."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset({statement.name})
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return frozenset(alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    if isinstance(statement, ast.Assign):
        targets: list[ast.expr] = statement.targets
    elif isinstance(statement, ast.AugAssign) or (isinstance(statement, ast.AnnAssign) and statement.value):
        targets = [statement.target]
    else:
        return frozenset()
    parts = [part for target in targets for part in ast.walk(target)]
    return frozenset(part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))


def is_constant(statement: ast.stmt) -> bool:
    """Whether it only binds a number or a text that stands there, or is one."""
    return (
        isinstance(statement, ast.Assign)
        and all(isinstance(target, ast.Name) for target in statement.targets)
        and _literal(statement.value)
    ) or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def _literal(node: ast.AST | None) -> bool:
    kinds = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.Load)
    return node is None or all(isinstance(part, kinds) for part in ast.walk(node))


def plain_defaults(statement: ast.stmt) -> bool:
    """Whether no default of a function's arguments can change."""
    arguments = statement.args  # type: ignore[attr-defined]
    return all(_literal(default) for default in [*arguments.defaults, *arguments.kw_defaults])


def may_draw(statements: Iterable[ast.stmt]) -> bool:
    """Whether it may draw from, or set, a generator that it does not name."""
    named = set[ast.AST]()  # functions that are handed a generator, and methods of one that is made there
    for node in walk(statements):
        if isinstance(node, ast.Call) and any(each.arg == "generator" for each in node.keywords):
            named.add(node.func)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and called(node.value) == "Generator":
            named.add(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and (not modules(node) <= KNOWN or _makes_models(node)):
            return True
        if node not in named and any(RANDOM.fullmatch(word.rstrip("_")) for word in words(node)):
            return True
    return False


def _makes_models(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether it imports what may make a model: torch draws its parameters before the lesson's own take their place."""
    whole = [each.name for each in node.names] if isinstance(node, ast.Import) else [f"{node.module}."]
    return any(name.startswith("course.lessons") and not name.startswith(DRAW_NOTHING) for name in whole)


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def sows(statement: ast.stmt) -> bool:
    """`torch.manual_seed(0)` as a whole statement."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and dotted(call.func) == "torch.manual_seed"
        and all(map(_literal, call.args))
        and not call.keywords
    )
