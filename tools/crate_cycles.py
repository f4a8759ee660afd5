"""Import cycles between the files of each crate, read from their `use` lines and paths.

A re-export is no import of its own: a file that imports a name from a `mod.rs` imports the file
that defines it. Modules of tests and of loom's models do not count.

    python -m tools.crate_cycles
"""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]

REGISTRIES = {
    "algorithms": ("registry/mod.rs",),
}
"""Files that list their members, which import the members' trait from them."""

Module = tuple[str, ...]

COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
LITERALS = re.compile(r'b?"(?:\\.|[^"\\])*"|r#".*?"#', re.DOTALL)
INLINE_TESTS = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:pub(?:\([^)]*\))? )?mod \w+ \{.*", re.DOTALL)
MODULE = re.compile(
    r"(?P<attributes>(?:#\[[^\]]*\]\s*)*)(?:pub(?:\([^)]*\))? )?mod (?P<name>\w+);",
)
REGISTERED = re.compile(r"algorithms! \{([^}]*)\}")
USE = re.compile(r"(?:^|\n)\s*(?P<public>pub(?:\([^)]*\))? )?use (?P<tree>[^;]+);")
PATH = re.compile(r"(?<![\w:])(?:crate|super|self)(?:::\w+)+")
SCOPED = re.compile(r"(?<![\w:])(\w+)((?:::\w+)+)")


def leaves(tree: str) -> list[tuple[Module, str]]:
    """The paths of a `use` tree, each with the name that it has here."""
    tree = " ".join(tree.split())
    match = re.fullmatch(r"((?:\w+::)*)\{(.*)\}", tree)
    if not match:
        path, _, renamed = tree.partition(" as ")
        parts = tuple(path.strip().split("::"))
        if parts[-1] == "self" and len(parts) > 1:
            parts = parts[:-1]
        return [(parts, renamed or parts[-1])]
    prefix = tuple(match[1].removesuffix("::").split("::")) if match[1] else ()
    items, depth, start = [], 0, 0
    for at, letter in enumerate(match[2] + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            items.append((match[2] + ",")[start:at].strip())
            start = at + 1
    found = []
    for item in filter(None, items):
        if item == "self":
            found.append((prefix, prefix[-1]))
        else:
            found += [(prefix + path, name) for path, name in leaves(item)]
    return found


class Crate:
    """The modules of a crate in files of their own, without those of tests and models."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.files: dict[Module, Path] = {}
        self.texts: dict[Module, str] = {}
        self.uses: dict[Module, list[tuple[Module, str, bool]]] = {}
        self._read((), source / "lib.rs", source)

    def _read(self, module: Module, file: Path, folder: Path) -> None:
        text = INLINE_TESTS.sub("", LITERALS.sub('""', COMMENTS.sub("", file.read_text())))
        self.files[module] = file
        self.uses[module] = [
            (path, name, bool(match["public"])) for match in USE.finditer(text) for path, name in leaves(match["tree"])
        ]
        self.texts[module] = USE.sub("\n", text)
        for match in MODULE.finditer(text):
            if re.search(r"\btest\b|\bloom\b|\bpath =", match["attributes"].replace("not(loom)", "")):
                continue
            name = match["name"]
            flat, nested = folder / f"{name}.rs", folder / name / "mod.rs"
            self._read((*module, name), flat if flat.exists() else nested, folder / name)
        for names in REGISTERED.findall(text):
            for name in re.findall(r"\w+", names):
                self._read((*module, name), folder / f"{name}.rs", folder / name)

    def _definer(
        self, here: Module, path: Module, seen: frozenset[tuple[Module, Module]] = frozenset()
    ) -> Module | None:
        """Returns the module that defines a path's target in `here`; None for another crate."""
        if (here, path) in seen:
            return None
        seen |= {(here, path)}
        at = here
        if path[0] == "crate":
            at, rest = (), path[1:]
        elif path[0] in ("super", "self"):
            rest = path
            while rest and rest[0] in ("super", "self"):
                at, rest = (at[:-1] if rest[0] == "super" else at), rest[1:]
        elif (*here, path[0]) in self.files:
            rest = path
        else:
            named = [used for used, name, _ in self.uses[here] if name == path[0] and used[0] != path[0]]
            return self._definer(here, named[0] + path[1:], seen) if named else None
        while rest and (*at, rest[0]) in self.files:
            at, rest = (*at, rest[0]), rest[1:]
        if not rest:
            return at
        for used, name, _ in self.uses[at]:
            if name == rest[0]:
                return self._definer(at, used + rest[1:], seen) or at
        for used, name, _ in self.uses[at]:
            if name == "*":
                found = self._definer(at, used[:-1] + rest, seen)
                if found is not None and found != at and re.search(rf"\b{rest[0]}\b", self.texts[found]):
                    return found
        return at

    def imports(self) -> dict[str, set[str]]:
        """For each file the files that it imports."""
        edges: dict[str, set[str]] = defaultdict(set)
        for module in self.files:
            paths = [path for path, _, public in self.uses[module] if not public]
            paths += [tuple(found.split("::")) for found in PATH.findall(self.texts[module])]
            paths += [
                (first, *rest.split("::")[1:])
                for first, rest in SCOPED.findall(self.texts[module])
                if first not in ("crate", "super", "self")
            ]
            for path in paths:
                definer = self._definer(module, path)
                if definer is not None and definer != module and not self._is_folder(definer, path):
                    edges[self._name(module)].add(self._name(definer))
        return edges

    def _is_folder(self, module: Module, path: Module) -> bool:
        """Whether a path names a module itself: only the paths that begin with it count."""
        return bool(module) and path[-1] == module[-1]

    def _name(self, module: Module) -> str:
        return str(self.files[module].relative_to(self.source))


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of files that reach each other, largest first (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(file: str) -> None:
        order[file] = low[file] = len(order)
        stack.append(file)
        for other in sorted(edges.get(file, ())):
            if other not in order:
                visit(other)
            if other in stack:
                low[file] = min(low[file], low[other])
        if low[file] == order[file]:
            members = stack[stack.index(file) :]
            del stack[stack.index(file) :]
            if len(members) > 1:
                found.append(sorted(members))

    for file in sorted(edges):
        if file not in order:
            visit(file)
    return sorted(found, key=lambda members: (-len(members), members))


def imports(crate: str) -> dict[str, set[str]]:
    """Returns the imports of one crate. A registry's imports of its members do not count."""
    edges = Crate(ROOT / "crates" / crate / "src").imports()
    return {file: ends for file, ends in edges.items() if file not in REGISTRIES.get(crate, ())}


def crate_cycles(crate: str) -> list[list[str]]:
    """The cycles of files of one crate."""
    return cycles(imports(crate))


def folder_cycles(crate: str) -> list[list[str]]:
    """The cycles of one crate's top folders."""
    edges: dict[str, set[str]] = defaultdict(set)
    for file, ends in imports(crate).items():
        folders = {end.split("/")[0] for end in ends if "/" in end}
        if "/" in file:
            edges[file.split("/")[0]] |= folders - {file.split("/")[0]}
    return cycles(edges)


def crates() -> list[str]:
    """The crates of the workspace."""
    return sorted(path.parents[1].name for path in ROOT.glob("crates/*/src/lib.rs"))


if __name__ == "__main__":
    for crate in crates():
        for members in crate_cycles(crate):
            print(f"{crate}: {', '.join(members)}")
