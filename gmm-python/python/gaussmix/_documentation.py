"""Signatures and documentation of estimators most of whose parameters are those of another."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

_Init = TypeVar("_Init", bound=Callable[..., None])
_Class = TypeVar("_Class", bound=type)

_HEADING = "Parameters\n----------\n"
#: Where the entry of a parameter begins.
_ENTRY = re.compile(r"^(?=\S+ : )", re.MULTILINE)


def with_parameters_of(
    estimator: type, without: Collection[str] = (), defaults: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[_Init], _Init]:
    """Put the parameters of an estimator, but for some, in the place of ``**params`` in a signature; some have other defaults."""
    theirs = inspect.signature(estimator.__init__).parameters  # type: ignore[misc]
    shared = {
        name: parameter.replace(default=defaults.get(name, parameter.default))
        for name, parameter in theirs.items()
        if name not in without
    }

    def change(init: _Init) -> _Init:
        own = {
            name: parameter
            for name, parameter in inspect.signature(init).parameters.items()
            if parameter.kind is not parameter.VAR_KEYWORD and name not in shared
        }
        init.__signature__ = inspect.Signature([*shared.values(), *own.values()])  # type: ignore[attr-defined]
        return init

    return change


def with_documentation_of(estimator: type) -> Callable[[_Class], _Class]:
    """Put the entries of an estimator's parameters, as far as the signature has them, in the place of that of ``**params``.

    A parameter that the class itself has an entry for keeps that.
    """

    def change(cls: _Class) -> _Class:
        own = _entries(cls)
        if not own:
            return cls
        own.pop("**params")
        head, rest = inspect.cleandoc(cls.__doc__ or "").split(_HEADING)
        after = rest.split("\n\n")[1:]
        entries = {**_entries(estimator), **own}
        signature = inspect.signature(cls).parameters
        parameters = "\n".join(
            re.sub(r"default=(True|False)", f"default={signature[name].default}", entries[name], count=1) for name in signature
        )
        cls.__doc__ = "\n\n".join([f"{head}{_HEADING}{parameters}", *after])
        return cls

    return change


def description_of(thing: Any, parameter: str) -> str:
    """Give the description of a parameter of a class or function, in one line."""
    entry = _entries(thing).get(parameter, "")
    return " ".join(entry.split("\n", 1)[-1].split())


def _entries(thing: Any) -> dict[str, str]:
    """Give what the documentation says of each parameter, by name; nothing where Python was started with -OO."""
    if thing.__doc__ is None:
        return {}
    section = inspect.cleandoc(thing.__doc__).split(_HEADING)[1].split("\n\n")[0]
    return {entry.split(" : ")[0]: entry.rstrip() for entry in _ENTRY.split(section) if entry}
