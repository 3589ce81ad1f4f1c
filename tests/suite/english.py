"""Holds agent/ and collectors/ to plain English: words to be rid of are counted, some phrases are refused.

    python tests/suite/english.py [ROOT]

The maxima stand in pyproject.toml ([tool.ckptprof.english]) and may only fall.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from budget import figures_of

PHRASES = ("out of sight", "in the mean", "speaks for", "of it:", "is told", "nobody watched")
PAGES = ("README.md", "docs/*.md", "docs/tasks/*.md", "docs/*.1", "dashboards/**/*.json", "deploy/**/*.y*ml")
WORDS = {"tell": {"tell", "tells", "told", "telling"}, "look": {"look", "looks", "looked", "looking"}}
PATTERNS = {
    "what it tells": re.compile(r"\bwhat (?:\w+ ){1,3}(?:tells?|told|says?|said)\b"),
    "Return whether": re.compile("Return whether"),
}
_PROSE = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def count(root: Path) -> Counter[str]:
    """Return how often each word, pattern and doubled class name occurs, in prose and in identifiers."""
    found: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    for path in _modules(root):
        text = path.read_text(encoding="utf-8")
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME or token.type in _PROSE:
                parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", token.string)
                found.update(word for word, forms in WORDS.items() for part in parts if part.lower() in forms)
            if token.type in _PROSE:
                one_line = " ".join(token.string.split())
                found.update({name: len(pattern.findall(one_line)) for name, pattern in PATTERNS.items()})
        classes.update(node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))
    found["class names twice"] = sum(number > 1 for number in classes.values())
    return found


def phrases(root: Path) -> Iterator[str]:
    """Yield where text that users read has one of the phrases: string literals but docstrings, pages and dashboards."""
    for path in _modules(root):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                yield from (f"{path.relative_to(root)}:{node.lineno}: {one}" for one in PHRASES if one in node.value)
    for page in sorted(page for pattern in PAGES for page in root.glob(pattern)):
        text = " ".join(page.read_text(encoding="utf-8").split())
        yield from (f"{page.relative_to(root)}: {one}" for one in PHRASES if one in text)


def _modules(root: Path) -> list[Path]:
    return sorted(path for package in ("agent", "collectors") for path in (root / package).rglob("*.py"))


def main(root: Path) -> int:
    """Print what is over its maximum, and each phrase; return the exit code."""
    maxima = figures_of((root / "pyproject.toml").read_text(encoding="utf-8"), "english")
    found = count(root)
    faults = [
        f"{name}: {found[name]}, more than the {most} of [tool.ckptprof.english]: say it plainly (docs/CONTRIBUTING.md)"
        for name, most in maxima.items()
        if found[name] > most
    ]
    faults += [f"{where!r}: a phrase that nobody reads at once" for where in phrases(root)]
    print("\n".join(faults) or "; ".join(f"{name} {found[name]} of {most}" for name, most in maxima.items()))  # noqa: T201
    return 1 if faults or not maxima else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parents[2]))
