"""What of a policy the language layer needs, in a form that crosses the wire."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Rules:
    """The language layer's part of a policy.

    ``modules`` maps an allowed module to the names a cell may take from it, None for all public
    ones; cells get a facade of it. ``raw_modules`` are top-level packages that cells get as they
    are, submodules included: the operator's choice. ``operations`` are those of the host's that
    are granted, as cells call them (``ops.http``, ``llm``): remedies show how they are used.
    ``approvals`` says that a user who can be asked may approve of some imports beyond these:
    ``approvable`` knows which. ``reads`` says that packages can read files, ``writes`` names a
    folder where they can write some that stay, if there is one: for remedies, too.
    """

    language: bool
    modules: Mapping[str, tuple[str, ...] | None]
    raw_modules: frozenset[str]
    magics: frozenset[str]
    operations: frozenset[str] = frozenset()
    approvals: bool = False
    reads: bool = False
    writes: str = ""

    def to_builtins(self) -> dict[str, Any]:
        """Return plain data for the wire; ``from_builtins`` reads it back."""
        return {
            "language": self.language,
            "modules": {name: None if n is None else list(n) for name, n in self.modules.items()},
            "raw_modules": sorted(self.raw_modules),
            "magics": sorted(self.magics),
            "operations": sorted(self.operations),
            "approvals": self.approvals,
            "reads": self.reads,
            "writes": self.writes,
        }

    @classmethod
    def from_builtins(cls, data: Mapping[str, Any]) -> Rules:
        """Build rules from what ``to_builtins`` gave.

        Raises:
            KeyError: a field is missing.

        """
        modules = {k: None if n is None else tuple(n) for k, n in data["modules"].items()}
        return cls(
            language=bool(data["language"]),
            modules=modules,
            raw_modules=frozenset(data["raw_modules"]),
            magics=frozenset(data["magics"]),
            operations=frozenset(data["operations"]),
            approvals=bool(data["approvals"]),
            reads=bool(data["reads"]),
            writes=str(data["writes"]),
        )

    def granting(self, modules: Iterable[str], packages: Iterable[str]) -> Rules:
        """Return rules under which these may be imported, too.

        ``modules`` by their public names, where they have none yet; ``packages`` as they are.
        """
        return replace(
            self,
            modules={**dict.fromkeys(modules), **self.modules},
            raw_modules=self.raw_modules.union(packages),
        )

    def is_raw(self, module: str) -> bool:
        """Whether ``module`` belongs to a package that cells get as it is."""
        return module.partition(".")[0] in self.raw_modules

    def allows_module(self, module: str) -> bool:
        """Whether ``import module`` may run; a package counts if a submodule of it is allowed."""
        if module in self.modules or self.is_raw(module):
            return True
        prefix = module + "."
        return any(name.startswith(prefix) for name in self.modules)


#: For findings that no rule of a policy's is asked about.
NO_RULES = Rules(language=False, modules={}, raw_modules=frozenset(), magics=frozenset())
