"""What the site needs beyond MkDocs: pages of the root, formulas, and no load from elsewhere.

The README is the home page. Docstrings are written for any reader of reST, pages for GitHub; on the
site the formulas of both become MathML, and names in docstrings links to the API.
"""

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

# Pages of the site that are files of the root of the project
OF_THE_ROOT = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": None}

ROLE = re.compile(r":(math|cite|func|class|meth|mod|data|attr):`([^`]+)`")
DIRECTIVE = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +.*|(?=\n\1 +)))*)", re.MULTILINE)
DOLLARS = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
# Not a price, nor a variable of a shell: a formula touches its dollars, and these no word.
DOLLAR = re.compile(r"(?<![\w$`\\])\$(?=\S)([^$`\n]+?)(?<=\S)\$(?![\w$`])")
# What a page loads by itself; a link that a reader may follow is no load.
LOADS = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data|srcset)="
    r"[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?![^>]*\brel=[\"']?canonical)[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
STYLE_LOADS = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


def mathml(formula: str, display: str = "inline") -> str:
    """A formula of LaTeX as MathML, with a bar as long as what is under it."""
    bar = '<mo accent="true">&#x02015;</mo>'
    return convert(formula, display=display).replace(bar, '<mo stretchy="true">&#x000AF;</mo>')


class _Roles(Preprocessor):
    """Roles and formulas of reST to HTML, before Markdown sees them."""

    def run(self, lines: list[str]) -> list[str]:
        text = DIRECTIVE.sub(self._block, "\n".join(lines))
        text = DOLLARS.sub(lambda m: self._display(m[1]), text)
        text = DOLLAR.sub(lambda m: self.md.htmlStash.store(mathml(m[1])), text)
        return ROLE.sub(self._inline, text).split("\n")

    def _block(self, match: re.Match[str]) -> str:
        return f"\n{match[1]}{self._display(match[2])}\n"

    def _display(self, text: str) -> str:
        formula = mathml(" ".join(text.split()), "block")
        return self.md.htmlStash.store(f'<div class="formula">{formula}</div>')

    def _inline(self, match: re.Match[str]) -> str:
        role, content = match[1], " ".join(match[2].split())
        if role == "math":
            return self.md.htmlStash.store(mathml(content))
        if role == "cite":
            return self.md.htmlStash.store(f'<a href="../references/">{content}</a>')
        name = content.lstrip("~")
        shown = name.rpartition(".")[2] if content.startswith("~") else name
        # Optional: what is not on the API page stays a name.
        return self.md.htmlStash.store(
            f'<autoref identifier="{name}" optional><code>{shown}</code></autoref>'
        )


class _Docstrings(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        # After fenced blocks were put aside (25), so that code stays code.
        md.preprocessors.register(_Roles(md), "docstring_roles", 22)


def on_config(config: Any) -> Any:
    """Read reST roles wherever Markdown is read, docstrings included."""
    config.markdown_extensions.append(_Docstrings())
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages that are files of the root, with links as seen from docs."""
    root = Path(config.config_file_path).parent
    for page, name in OF_THE_ROOT.items():
        text = (root / (name or page)).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_post_build(*, config: Any) -> None:
    """Refuse a site that would load anything from another place."""
    site = Path(config.site_dir)
    wrong = [
        f"{path.relative_to(site)} loads {match[1] or match[match.lastindex]}"
        for pattern, kind in ((LOADS, "*.html"), (STYLE_LOADS, "*.css"), (STYLE_LOADS, "*.html"))
        for path in sorted(site.rglob(kind))
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    if wrong:
        raise PluginError("pages must not load from elsewhere:\n" + "\n".join(wrong))
