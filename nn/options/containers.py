"""Containers of modules by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..module import Module, checked_module

__all__ = ["ModuleDict"]


class ModuleDict(Module):
    """Dictionary of modules, for models that call them in their own `forward`.

    Parameters
    ----------
    modules : mapping of str to Module, optional
        Modules by name.
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        for name, module in (modules or {}).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(name, str):
            raise TypeError(f"ModuleDict: a name must be a string, got {name!r}")
        if "." in name or hasattr(ModuleDict, name):
            raise KeyError(
                "ModuleDict: a name must have no dot and be no attribute of ModuleDict, got "
                f"{name!r}"
            )
        setattr(self, name, checked_module(self, module))

    def __getitem__(self, name: str) -> Module:
        return dict(self.named_children())[name]

    def __contains__(self, name: object) -> bool:
        return name in dict(self.named_children())

    def __len__(self) -> int:
        return len(dict(self.named_children()))

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def keys(self) -> Iterator[str]:
        """Yield the names."""
        return (name for name, _ in self.named_children())

    def values(self) -> Iterator[Module]:
        """Yield the modules."""
        return self.children()

    def items(self) -> Iterator[tuple[str, Module]]:
        """Yield names and modules."""
        return self.named_children()
