"""How a setting is declared, and how a mapping becomes settings: unknown names and wrong types are refused."""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

import yaml

T = TypeVar("T")


class ConfigError(ValueError):
    """A setting that does not exist or cannot be what it was set to."""


def setting(default: Any, about: str, networks: Sequence[str] = ()) -> Any:
    """A documented setting with its default; `networks` are those that use it, where not all do."""
    return field(default=default, metadata={"about": about, "networks": tuple(networks)})


def section(kind: type, about: str) -> Any:
    return field(default_factory=kind, metadata={"about": about})


def _show_value(value: Any) -> str:
    """A value in a message: of what refers to itself a thousandfold only the beginning."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 200, 200


def require(condition: bool, name: str, value: Any, rule: str) -> None:
    if not condition:
        raise ConfigError(f"{name} must be {rule}, got {_show_value(value)}")


#: What reading YAML raises where a file is none: ValueError also for other bytes than text and for days that are not.
NO_YAML = (yaml.YAMLError, ValueError, RecursionError)


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a YAML file; one line says what is wrong with it."""
    if not path.exists():
        raise ConfigError(f"{path}: no such configuration file")
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except NO_YAML as error:
        raise ConfigError(
            f"{path}: not valid YAML ({(str(error).splitlines() or [type(error).__name__])[0]})"
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping of settings")
    return content


def flatten(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their dotted names."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def nest(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted names as a tree of sections."""
    content: dict[str, Any] = {}
    for key, value in settings.items():
        *path, last = key.split(".")
        node = content
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError(f"'{key}': '{part}' is a setting, not a section")
        node[last] = value
    return content


def read_settings(kind: type[T], content: dict[str, Any], where: str = "") -> T:
    """Build a settings class from a mapping; unknown keys and wrong types are refused with a suggestion."""
    hints = typing.get_type_hints(kind)
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]  # kind is always a dataclass here
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in names:
            near = difflib.get_close_matches(str(key), names, 1)
            hint = f"did you mean '{where}{near[0]}'?" if near else f"known: {', '.join(names)};"
            raise ConfigError(f"unknown setting '{where}{key}' ({hint} CHANGELOG.md tells of settings that are gone)")
        values[key] = _convert(hints[key], value, f"{where}{key}")
    return kind(**values)


def _convert(hint: Any, value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"'{name}' is a section, got {_show_value(value)}")
        return read_settings(hint, value, f"{name}.")  # type: ignore[arg-type]  # a dataclass type, not an instance
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(map(str, choices))}, got {_show_value(value)}")
        return value
    if origin in (Union, types.UnionType):
        return value
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if hint is float and isinstance(value, str):  # YAML reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            pass
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ConfigError(f"{name} must be a {hint.__name__}, got {_show_value(value)}")
    return value
