"""The picture on docs/whole-library-on-a-page.md, drawn from the imports of the package.

``python tests/picture.py`` writes it into the page; tests/test_architecture.py compares.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "wideangle"
PAGE = ROOT / "docs" / "whole-library-on-a-page.md"
BLOCK = re.compile(r"(?<=<!-- drawn by tests/picture.py -->\n\n```text\n).*?(?=```)", re.DOTALL)
# Not drawn: the public names, and the command that stands for the command line.
DOORS = {"__init__", "__main__"}


def parts(package: Path) -> set[str]:
    """Folders and files directly under the package."""
    inside = {path.relative_to(package).parts[0] for path in package.rglob("*.py")}
    return {name.removesuffix(".py") for name in inside}


def imported(tree: ast.AST, parts: set[str]) -> Iterator[tuple[int, str]]:
    """Line and part of each import of the package; ``__init__`` is the package itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "by a relative path"
            continue
        elif isinstance(node, ast.ImportFrom) and node.module == "wideangle":
            # The name may be a module or a public name, which lives in __init__.
            names = [
                f"wideangle.{alias.name}" if alias.name in parts else "wideangle"
                for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            root, _, rest = name.partition(".")
            if root == "wideangle":
                yield node.lineno, rest.split(".")[0] or "__init__"


def graph(package: Path = PACKAGE) -> dict[str, set[str]]:
    """For each part of the package the other parts that it imports."""
    names = parts(package)
    found: dict[str, set[str]] = {name: set() for name in sorted(names - DOORS)}
    for path in package.rglob("*.py"):
        here = path.relative_to(package).parts[0].removesuffix(".py")
        if here in found:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found[here] |= {name for _, name in imported(tree, names)} - DOORS - {here}
    return found


def reduced(below: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without an import that another one implies: a -> c where a -> b -> c."""
    reach: dict[str, set[str]] = {}
    for name in TopologicalSorter(below).static_order():
        reach[name] = below[name].union(*(reach[other] for other in below[name]))
    return {
        name: others - set().union(*(reach[other] for other in others))
        for name, others in below.items()
    }


def draw(below: dict[str, set[str]]) -> str:
    """One line for each part, what is imported always below what imports it."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(below).static_order():
        height[name] = 1 + max((height[other] for other in below[name]), default=-1)
    few = reduced(below)
    width = max(len(name) for name in below)
    lines, level = [], max(height.values())
    for name in sorted(below, key=lambda name: (-height[name], name)):
        if height[name] < level:
            lines.append("")
        level = height[name]
        arrow = f" -> {', '.join(sorted(few[name]))}" if few[name] else ""
        lines.append(f"{name:<{width}}{arrow}".rstrip())
    return "\n".join(lines) + "\n"


def drawn_on(page: Path = PAGE) -> str:
    """The picture as the page has it."""
    found = BLOCK.search(page.read_text(encoding="utf-8"))
    return found.group() if found else ""


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda _: draw(graph()), text), encoding="utf-8")
