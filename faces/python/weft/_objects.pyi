"""Types of shared objects."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

_Kind = TypeVar("_Kind")
_Call = TypeVar("_Call", bound=Callable[..., Any])

@overload
def reads(method: _Call, *, when: None = None) -> _Call: ...
@overload
def reads(
    method: None = None, *, when: Callable[..., object] | None = None
) -> Callable[[_Call], _Call]: ...
@overload
def writes(method: _Call, *, when: None = None, post: bool = False) -> _Call: ...
@overload
def writes(
    method: None = None, *, when: Callable[..., object] | None = None, post: bool = False
) -> Callable[[_Call], _Call]: ...
@overload
def shared(
    kind: type[_Kind], *, placement: int | Literal["replicated", "adaptive"] = "replicated"
) -> type[_Kind]: ...
@overload
def shared(
    kind: None = None, *, placement: int | Literal["replicated", "adaptive"] = "replicated"
) -> Callable[[type[_Kind]], type[_Kind]]: ...

class Shared: ...
