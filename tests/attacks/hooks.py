"""What a notebook can do to the kernel that shows it: tags, hooks, transformers, forged outputs."""

from __future__ import annotations

from nbformat import NotebookNode
from nbformat.v4 import new_output

from attacks import lesson
from attacks.attack import NOTHING, VICTIM, WRONG, Attack, Places, cell

FORGED = """\
import builtins

import course
import course.notebook.check

builtins.check = course.check = course.notebook.check.check = check = lambda *answers: {points}
"""

HOOKS = """\
from IPython import get_ipython

shell = get_ipython()


def forge(*args, **kwargs):
    print("96")
    return {"text/plain": "96", "text/html": "<b>96 of 96</b>"}, {}


for event in ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell"):
    shell.events.register(event, forge)
shell.display_formatter.format = forge
shell.displayhook.compute_format_data = forge
"""

NO_CELL = """\
from IPython import get_ipython
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

shell = get_ipython()


def run_nothing(self, *args, **kwargs):
    print("96")
    result = ExecutionResult(None)
    result.result = 96
    return result


InteractiveShell.run_cell = InteractiveShell.run_code = type(shell).run_cell = run_nothing
"""

NO_ASSERT = """\
import ast

from IPython import get_ipython


class Strip(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.Pass()

    def visit_Call(self, node):
        return ast.Constant(96) if getattr(node.func, "id", "") == "check" else self.generic_visit(node)


get_ipython().ast_transformers.append(Strip())
"""

NO_CHECK = """\
from IPython import get_ipython


def strip(lines):
    return ["96\\n" if line.startswith(("assert", "check(")) else line for line in lines]


shell = get_ipython()
shell.input_transformers_cleanup.append(strip)
shell.input_transformers_post.append(strip)
"""

MESSAGES = """\
from IPython import get_ipython

kernel = getattr(get_ipython(), "kernel", None)
if kernel is not None:
    for kind in ("execute_result", "display_data"):
        content = {"data": {"text/plain": "96"}, "metadata": {}, "execution_count": 1, "transient": {}}
        kernel.session.send(kernel.iopub_socket, kind, content, parent=kernel.get_parent())
    kernel.session.send(kernel.shell_socket if hasattr(kernel, "shell_socket") else None, "execute_reply", {})
"""


def _claim(notebook: NotebookNode) -> None:
    """Tags that keep cells from running, outputs and numbers that say all is well."""
    for each in notebook.cells:
        each.metadata["tags"] = ["skip-execution", "raises-exception", "remove-cell"]
        each.metadata.setdefault("nbgrader", {})["points"] = 1000
        if each.cell_type == "code":
            each.execution_count = 1
            each.outputs = [new_output("execute_result", {"text/plain": "96", "text/html": "96"}, execution_count=1)]
    notebook.metadata["hpml"] = {"grading": {"seed": 1, "verdict": "96"}}


def _tagged(places: Places) -> bytes:
    notebook = lesson.untouched()
    _claim(notebook)
    return lesson.to_bytes(notebook)


def _tagged_and_wrong(places: Places) -> bytes:
    notebook = lesson.solved(**{VICTIM: WRONG})
    _claim(notebook)
    return lesson.to_bytes(notebook)


ATTACKS = [
    Attack(name="skip_execution_and_write_nothing", make=_tagged, honest=NOTHING),
    Attack(name="skip_execution_and_be_wrong", make=_tagged_and_wrong, honest={VICTIM: 0}),
    cell("own_check", FORGED.format(points=96)),
    cell("hooks_that_print_points", HOOKS),
    cell("cells_that_never_run", NO_CELL),
    cell("asserts_stripped_from_the_tree", NO_ASSERT),
    cell("checks_stripped_from_the_text", NO_CHECK),
    cell("messages_of_the_kernel", MESSAGES),
]
