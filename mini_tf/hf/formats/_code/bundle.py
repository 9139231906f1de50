"""One file of the definitions that a model needs: found from some of them, as far as their code can reach.

A definition is needed if one that is needed refers to it; a member of a class, if its name is read as an attribute
anywhere in what is needed. So methods for inspection, costs or the rules of recipes fall away by themselves.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any, NamedTuple

from mini_tf.hf.formats._code.source_module import SHAPED, Key, Reference, SourceModule, source_module
from mini_tf.hf.formats._code.source_text import Edit, Known, edited, is_text
from mini_tf.system.errors import RunFault

OUTSIDE = sys.stdlib_module_names | {"torch", "safetensors", SHAPED}
"""Packages that the file may import."""
CALLED = frozenset({"forward", "backward"})
"""Methods that torch calls."""


class _Piece(NamedTuple):
    """A statement at the top of a module."""

    module: SourceModule
    statement: Any

    @property
    def names(self) -> list[str]:
        return [name for name, other in self.module.definitions.items() if other is self.statement]


class Bundle:
    """What `roots` need, of these packages.

    replaced: definitions with others in their place. whole: classes that keep all members, as others call
    them. known: as in `SourceModule`. names: of each definition in the file. attributes: the names that are read.
    """

    def __init__(
        self, roots: Iterable[Key], packages: set[str], replaced: Mapping[Key, Key], whole: Set[Key], known: Known
    ) -> None:
        self._packages, self._replaced, self._whole, self._known = frozenset(packages), replaced, whole, known
        self._modules: dict[str, SourceModule] = {}
        self._needed: dict[Key, str] = {}
        self.attributes: set[str] = set()
        for root in roots:
            self._need(root, str(root[1]))
        self._pieces = self._closed()
        self.names = self._unique_names()

    def _module(self, name: str) -> SourceModule:
        if name not in self._modules:
            self._modules[name] = source_module(name, self._packages, self._known)
        return self._modules[name]

    def _is_own(self, key: Key) -> bool:
        return key[0].partition(".")[0] in self._packages

    def _resolve(self, key: Key) -> Key:
        """Where something is defined that may have been imported from elsewhere."""
        key = self._replaced.get(key, key)
        if not self._is_own(key) or key[1] is None or key[0] not in sys.modules:  # imported for type checkers
            return key
        if key[1] in self._module(key[0]).definitions:
            return key
        imported = self._module(key[0]).imports.get(key[1])
        return (".".join(key), None) if imported is None else self._resolve(imported)  # type: ignore[arg-type]

    def _need(self, key: Key, local: str) -> None:
        key = self._resolve(key)
        top = key[0].partition(".")[0]
        if self._is_own(key) and key[1] is None:
            raise RunFault(f"its code refers to the module {key[0]}, which has no place in a file")
        if not self._is_own(key) and top not in OUTSIDE:
            raise RunFault(f"its code needs {top}, and a file that runs alone has torch only")
        self._needed.setdefault(key, local)

    def _closed(self) -> list[tuple[_Piece, list[ast.AST]]]:
        """All that is needed, each with its parts: the whole, or of a class the members that are used."""
        size = -1
        while size != len(self._needed) + len(self.attributes):
            size = len(self._needed) + len(self.attributes)
            pieces = {
                id(piece.statement): piece for key in self._needed if self._is_own(key) for piece in [self._piece(key)]
            }
            closed = [(piece, [*self._parts(piece)]) for piece in pieces.values()]
            for piece, parts in closed:
                for uses in map(piece.module.uses, parts):
                    self.attributes |= uses.attributes
                    for reference in uses.references:
                        self._need(reference.key, reference.local)
                    for reference in chain.from_iterable(note.references for note in uses.annotations):
                        if reference.key[0].partition(".")[0] in OUTSIDE:
                            self._need(reference.key, reference.local)
        return closed

    def _piece(self, key: Key) -> _Piece:
        module = self._module(key[0])
        return _Piece(module, module.definitions[str(key[1])])

    def _parts(self, piece: _Piece) -> Iterator[ast.AST]:
        cls = piece.statement
        if not isinstance(cls, ast.ClassDef):
            yield cls
            return
        yield from [*cls.bases, *(word.value for word in cls.keywords), *cls.decorator_list]
        has_fields = "dataclass" in "".join(map(ast.dump, cls.decorator_list)) or "NamedTuple" in map(_id, cls.bases)
        for member in cls.body:
            names = _member_names(member)
            used = names & (self.attributes | CALLED) or any(name.startswith("__") for name in names)
            if (
                used
                or (piece.module.name, cls.name) in self._whole
                or (has_fields and isinstance(member, ast.AnnAssign))
            ):
                yield member

    def _unique_names(self) -> dict[Key, str]:
        """The name of each definition in the file: its own if no other has it; what is imported comes first."""
        names: dict[Key, str] = {}
        for key in sorted(self._needed, key=self._is_own):
            word = key[0].rpartition(".")[2].strip("_")
            title = "".join(part.title() for part in word.split("_"))
            name = str(key[1]) if self._is_own(key) else self._needed[key]
            if name == "Settings":
                name = f"{title}Settings"
            if name in names.values():
                name = f"{title}{name}" if name[:1].isupper() else f"{word}_{name.strip('_')}"
            while name in names.values():
                name += "_"
            names[key] = name
        return names

    def text(self) -> str:
        """The imports, and all definitions, each before what needs it when it is defined."""
        texts, last, order = [], None, self._in_order()
        for piece, parts in order:
            if piece.module is not last:
                texts.append(_heading(piece.module))
            texts.append(self._written(piece, parts).strip("\n"))
            last = piece.module
        return "\n\n\n".join([self._imports(order), *texts]) + "\n"

    def _in_order(self) -> list[tuple[_Piece, list[ast.AST]]]:
        """Modules after those that they import, `whole` ones last, and definitions as they stand there."""
        order: dict[str, int] = {}
        needed = {piece.module.name for piece, _ in self._pieces}

        def visit(name: str, seen: set[str]) -> None:
            if name not in seen:
                seen.add(name)
                for module, part in self._modules[name].when_loaded:
                    for other in (module, f"{module}.{part}", self._replaced.get((module, part), (module,))[0]):
                        if other in self._modules:
                            visit(other, seen)
                order.setdefault(name, len(order))

        seen: set[str] = set()
        last = {module for module, _ in self._whole}
        for name in sorted(needed, key=lambda name: (name in last, name)):
            visit(name, seen)
        return sorted(self._pieces, key=lambda item: (order[item[0].module.name], item[0].statement.lineno))

    def _readable(self, references: Sequence[Reference]) -> bool:
        """Whether all that an annotation names is in the file."""
        return all(self._resolve(reference.key) in self.names for reference in references)

    def _imports(self, order: Sequence[tuple[_Piece, list[ast.AST]]]) -> str:
        every = [piece.module.uses(part) for piece, parts in order for part in parts]
        notes = (note.references for uses in every for note in uses.annotations if self._readable(note.references))
        used = [*chain.from_iterable(uses.references for uses in every), *chain.from_iterable(notes)]
        keys = {key for reference in used if not self._is_own(key := self._resolve(reference.key))}
        lines: dict[str, set[str]] = {}
        for module, name in keys:
            local = self.names[module, name]
            if name is None:
                lines[f"import {module}" + ("" if local == module else f" as {local}")] = set()
            elif module != SHAPED:
                lines.setdefault(f"from {module} import ", set()).add(name if local == name else f"{name} as {local}")
        shaped = sorted(self.names[key] for key in keys if key[0] == SHAPED)
        lines.setdefault("from typing import ", set()).update(["Annotated", "Any"] if shaped else ["Any"])
        texts = sorted(
            lines, key=lambda line: (line.split()[1].partition(".")[0] in OUTSIDE - sys.stdlib_module_names, line)
        )
        imports = [line + ", ".join(sorted(lines[line])) for line in texts]
        alias = [f"\n{' = '.join(shaped)} = Annotated  # a tensor, with its axes"] if shaped else []
        return "\n".join(["from __future__ import annotations\n", *imports, *alias])

    def _written(self, piece: _Piece, parts: list[ast.AST]) -> str:
        module, statement = piece
        first, last = module.line_span(statement, module.tree.body)
        edits = [edit for part in parts for edit in self._edits(module, part)]
        for name in piece.names:
            local = self.names.get((module.name, name), name)
            if isinstance(statement, ast.ClassDef | ast.FunctionDef):
                at = module.text.index(name, module.span(statement)[0])
                edits.append(Edit(at, at + len(name), local))
            elif local != name:
                stores = [node for node in ast.walk(statement) if isinstance(getattr(node, "ctx", None), ast.Store)]
                edits += [Edit(*module.span(node), local) for node in stores if _id(node) == name]
        if isinstance(statement, ast.ClassDef):
            body = statement.body
            dropped = [member for member in body if member not in parts and not is_text(member)]
            edits += [Edit(*module.line_span(member, body)) for member in dropped]
            if not is_text(body[0]) and not any(member in parts for member in body):
                edits.append(Edit(last, last, "    pass\n"))
        text = re.sub(r"  # (type: ignore|noqa).*", "", edited(module.text, edits, first, last))
        return re.sub(r"\n(\s*\n){2,}", "\n\n", text)

    def _edits(self, module: SourceModule, part: ast.AST) -> Iterator[Edit]:
        """Names as they are in the file, and annotations only where all of them are there."""
        uses = module.uses(part)
        references = [*uses.references]
        for note in uses.annotations:
            named = [(reference, self.names.get(self._resolve(reference.key))) for reference in note.references]
            inside_text = any(
                module.text[reference.start] in "\"'" and name != reference.local for reference, name in named
            )
            if inside_text or not self._readable(note.references):
                yield note.without
            else:
                references += [reference for reference in note.references if module.text[reference.start] not in "\"'"]
        for reference in references:
            name = self.names[self._resolve(reference.key)]
            if module.text[reference.start : reference.end] != name:
                yield Edit(reference.start, reference.end, name)


def _id(node: Any) -> str:
    return str(getattr(node, "id", ""))


def _member_names(member: Any) -> set[str]:
    targets = [member.target] if hasattr(member, "target") else getattr(member, "targets", [])
    return {*map(_id, targets), *([member.name] if hasattr(member, "name") else [])}


def _heading(module: SourceModule) -> str:
    """A comment with what the module says about itself."""
    lines = (ast.get_docstring(module.tree) or module.name).splitlines()
    return "\n".join(["# " + "-" * 118, *(f"# {line}".rstrip() for line in lines)])
