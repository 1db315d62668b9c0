"""Extract facts from Python source: its definitions, its branches, and the URLs in its docstrings."""

import ast
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

URL = re.compile(r"https?://[^\s<>\"'`)\]}]+")
WORD = re.compile(r"[a-z]{4,}")
COMMON = re.compile(
    "also|arguments|been|called|default|does|each|false|first|from|given|have|into|more|must|none|only|optional|other|return|returned|returns"
    "|same|self|should|such|than|that|their|them|then|there|these|they|this|true|used|using|value|values|when|which|will|with"
)
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.Assert)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Before Python 3.13, all threads share the parser's count of its depth, and concurrent calls fail.
_parser = threading.Lock()


def _parsed(source: bytes, filename: str) -> ast.Module:
    with _parser:
        return ast.parse(source, filename)


@dataclass(frozen=True)
class Found:
    """One definition in the source."""

    kind: str
    qualified_name: str
    signature: str
    line: int
    docstring: str

    @property
    def name(self) -> str:
        """Return the last part of the qualified name."""
        return self.qualified_name.rpartition(".")[2]


@dataclass(frozen=True)
class Extract:
    """The contents of one module's source."""

    docstring: str
    line_count: int
    definitions: tuple[Found, ...]


@dataclass(frozen=True)
class Measure:
    """The number of functions in some source, and of their branches."""

    functions: int
    branches: int

    def __add__(self, other: "Measure") -> "Measure":
        """Return the sum of both."""
        return Measure(self.functions + other.functions, self.branches + other.branches)

    @property
    def complexity(self) -> float:
        """Return the mean number of paths through a function: one, and one more for each branch."""
        return round(1 + self.branches / self.functions, 2) if self.functions else 1.0


def extract(source: bytes, filename: str = "<source>") -> Extract:
    """Return the docstring and the definitions of `source`; raise SyntaxError if it is not Python of this version."""
    tree = _parsed(source, filename)
    return Extract(clean(ast.get_docstring(tree) or ""), source.count(b"\n") + 1, tuple(_definitions(tree, "", in_class=False)))


def measure(source: bytes, filename: str = "<source>") -> Measure:
    """Return how many functions `source` has, and how many branches they have."""
    functions = [node for node in ast.walk(_parsed(source, filename)) if isinstance(node, FUNCTIONS)]
    branches = {node for function in functions for node in ast.walk(function) if isinstance(node, BRANCHES)}
    return Measure(len(functions), len(branches))


def urls(text: str) -> set[str]:
    """Return the URLs in `text`, without the punctuation after them."""
    return {match.rstrip(".,;:") for match in URL.findall(text)}


def words(text: str) -> list[str]:
    """Return the significant words of `text`, in lower case."""
    return [word for word in WORD.findall(text.lower()) if not COMMON.fullmatch(word)]


def clean(text: str) -> str:
    """Return `text` in a form that each database can store: no NUL, no lone surrogate."""
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")


def _definitions(node: ast.AST, prefix: str, *, in_class: bool) -> Iterator[Found]:
    """Yield the definitions in statements and class bodies, also inside of `if` and `try`, but not in the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield _found(child, prefix, in_class=in_class)
        if isinstance(child, ast.ClassDef):
            yield from _definitions(child, f"{prefix}{child.name}.", in_class=True)
        elif isinstance(child, (ast.If, ast.Try, ast.ExceptHandler, ast.With)):
            yield from _definitions(child, prefix, in_class=in_class)


def _found(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, prefix: str, *, in_class: bool) -> Found:
    if isinstance(node, ast.ClassDef):
        kind, inner = "CLASS", ", ".join(ast.unparse(base) for base in node.bases)
    else:
        kind = "METHOD" if in_class else "COROUTINE" if isinstance(node, ast.AsyncFunctionDef) else "FUNCTION"
        inner = ast.unparse(node.args)
    return Found(kind, f"{prefix}{node.name}", clean(f"({inner})")[:300], node.lineno, clean(ast.get_docstring(node) or ""))
