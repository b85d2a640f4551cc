"""Configuration: a dataclass is the schema, YAML fills it, ``key.sub=value`` overrides.

Example: ``config = load_config(MyConfig, "configs/tiny.yaml", ["train.steps=20", "seed=1"])``.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml

from t2x.errors import T2XError
from t2x.plain import plain

__all__ = [
    "ConfigError",
    "build_config",
    "check_ranges",
    "find_config",
    "load_config",
    "save_config",
    "to_dict",
]

T = TypeVar("T")
_PACKAGED = "t2x.configs"
_UNREADABLE = (yaml.YAMLError, ValueError, RecursionError)  # too long a number, too deep a nest
_OF_ANYTHING: dict[Any, tuple[Any, ...]] = {list: (Any,), tuple: (Any, ...), dict: (Any, Any)}
_SHOWN = 200  # characters of a value in an error


class ConfigError(T2XError, ValueError):
    """A configuration that does not fit its schema; names the key and what is allowed."""


def load_config(cls: type[T], path: str | Path | None = None, overrides: Sequence[str] = ()) -> T:
    """Build the dataclass ``cls`` from its defaults, a YAML file, then ``key.sub=value`` texts.

    Raises ``ConfigError`` for an unknown key, a wrong type, or a file that is no YAML mapping.
    """
    values: dict[str, Any] = {} if path is None else _read(Path(path))
    for text in overrides:
        _override(values, text)
    return build_config(cls, values)


def build_config(cls: type[T], values: Mapping[str, Any]) -> T:
    """Build the dataclass ``cls`` from nested plain values, checking every key and type."""
    return typing.cast("T", _build(cls, values, ""))


def check_ranges(
    section: str, config: Any, bounds: Mapping[str, tuple[float | str, float]]
) -> None:
    """Raise T2XError for a field of a dataclass that is no finite number from low to high.

    ``bounds`` maps fields to (low, high), where low may be the name of another field. Fields that
    are declared ``int`` take whole numbers only; None passes where a field's default is None.
    ``section`` names the configuration in the message.
    """
    fields = {field.name: field for field in dataclasses.fields(config)}

    def number(name: str) -> float | None:
        value, declared = getattr(config, name), str(fields[name].type)
        if value is None and fields[name].default is None:
            return None
        kind = numbers.Integral if declared.startswith("int") else numbers.Real
        if isinstance(value, bool) or not isinstance(value, kind):
            what = "a whole number" if kind is numbers.Integral else "a number"
            raise T2XError(f"{section}: {name} is {value!r}; give {what}")
        return typing.cast("float", value)

    for name, (low, high) in bounds.items():
        value, least = number(name), number(low) if isinstance(low, str) else low
        if value is None or least is None:
            continue
        if not (least <= value <= high and math.isfinite(value)):
            raise T2XError(f"{section}: {name} is {value}; give {least:g} to {high:g}")


def to_dict(config: Any) -> dict[str, Any]:
    """Give a configuration as plain values that YAML and JSON can hold."""
    values: dict[str, Any] = plain(config, exact=True)
    return values


def save_config(config: Any, path: str | Path) -> None:
    """Write the resolved configuration as YAML; ``load_config`` reads the same values back."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True), "utf-8")


def find_config(name: str) -> Path:
    """Give the file of that name, or the one that t2x brings: ``world/grpo`` is
    ``configs/train/world/grpo.yaml``."""
    from importlib.resources import files

    path = Path(name)
    if path.is_file():
        return path
    own = Path(str(files(_PACKAGED))) / "train"
    brought = own / f"{name.removesuffix('.yaml')}.yaml"
    if brought.is_file():
        return brought
    known = sorted(str(p.relative_to(own).with_suffix("")) for p in own.rglob("*.yaml"))
    raise T2XError(
        f"there is no file {name!r}; give a YAML file or one of: {', '.join(known) or 'none'}"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error}") from error
    except _UNREADABLE as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{str(path)!r} is not valid YAML: {reason}") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{str(path)!r} must hold keys and values, got {_kind(values)}")
    return values


def _override(values: dict[str, Any], text: str) -> None:
    key, equals, raw = text.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise ConfigError(f"an override is written key=value or key.sub=value, got {text!r}")
    *parents, last = key.strip().split(".")
    for depth, parent in enumerate(parents):
        inner = values.get(parent)
        if inner is None:  # not there, or a section that YAML leaves empty
            inner = values[parent] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"{'.'.join(parents[: depth + 1])!r} is a value, so {key!r} is none")
        values = inner
    try:
        values[last] = yaml.safe_load(raw)
    except _UNREADABLE as error:
        raise ConfigError(f"the value of the override {_shown(text)} is not valid YAML") from error


def _build(cls: type, values: object, prefix: str) -> Any:
    if values is None:  # a section that YAML leaves empty, like an empty file
        values = {}
    if not isinstance(values, Mapping):
        name = prefix or cls.__name__
        raise ConfigError(f"{name!r} must hold keys and values, got {_shown(values)}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for key in values:
        if key not in fields:
            raise ConfigError(_unknown_key(prefix, str(key), list(fields)))
    missing = [name for name, field in fields.items() if name not in values and _required(field)]
    if missing:
        raise ConfigError(f"missing key {prefix + missing[0]!r} of {cls.__name__}; give a value")
    built = {key: _convert(hints[key], value, f"{prefix}{key}") for key, value in values.items()}
    try:
        return cls(**built)
    except ValueError as error:
        raise ConfigError(f"{prefix.rstrip('.') or cls.__name__}: {error}") from error


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _unknown_key(prefix: str, key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {prefix + close[0]!r}? " if close else ""
    return f"unknown key {prefix + key!r}: {hint}known are: {', '.join(known)}"


def _convert(hint: Any, value: Any, key: str) -> Any:
    """Turn a YAML value into the type that the schema names."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _OF_ANYTHING:
        origin, args = hint, _OF_ANYTHING[hint]
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast("type", hint), value, f"{key}.")
    if origin is Literal:
        return _choose(args, value, key)
    if origin in (Union, types.UnionType):
        return _convert_union(args, value, key)
    if origin in (list, tuple):
        return _convert_sequence(origin, args, value, key)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise _wrong(key, hint, value)
        names = {k: _convert(args[0], k, f"a key of {key}") for k in value}
        return {names[k]: _convert(args[1], v, f"{key}.{k}") for k, v in value.items()}
    return _convert_scalar(hint, value, key)


def _convert_scalar(hint: Any, value: Any, key: str) -> Any:
    if hint is bool or isinstance(value, bool):
        if hint is bool and isinstance(value, bool):
            return value
        raise _wrong(key, hint, value)
    if hint is int and isinstance(value, int):
        return value
    if hint is float and isinstance(value, int | float | str):
        try:
            return float(value)  # YAML reads 1e-4 as text
        except (ValueError, OverflowError) as error:
            raise _wrong(key, hint, value) from error
    if hint in (str, Path) and isinstance(value, str):
        return hint(value)
    raise _wrong(key, hint, value)


def _convert_union(options: tuple[Any, ...], value: Any, key: str) -> Any:
    if value is None and type(None) in options:
        return None
    error: ConfigError | None = None
    for option in options:
        if option is type(None):
            continue
        try:
            return _convert(option, value, key)
        except ConfigError as failed:
            error = failed
    raise error or _wrong(key, Union[options], value)  # noqa: UP007


def _convert_sequence(origin: type, args: tuple[Any, ...], value: Any, key: str) -> Any:
    if not isinstance(value, list | tuple):
        raise _wrong(key, origin, value)
    if origin is tuple and args[-1] is not Ellipsis:
        if len(value) != len(args):
            raise ConfigError(f"{key!r} must have {len(args)} entries, got {len(value)}")
        hints = args
    else:
        hints = args[:1] * len(value)
    pairs = enumerate(zip(hints, value, strict=True))
    return origin(_convert(hint, item, f"{key}[{i}]") for i, (hint, item) in pairs)


def _choose(allowed: tuple[Any, ...], value: Any, key: str) -> Any:
    # The type counts too: to Python true is 1.
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        choices = ", ".join(map(repr, allowed))
        raise ConfigError(f"{key!r} must be one of {choices}, got {_shown(value)}")
    return value


def _wrong(key: str, hint: Any, value: Any) -> ConfigError:
    name = hint.__name__ if isinstance(hint, type) else str(hint)
    return ConfigError(f"{key!r} must be {name}, got {_shown(value)} ({_kind(value)})")


def _shown(value: Any) -> str:
    """The value as Python writes it, cut if it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _kind(value: Any) -> str:
    return type(value).__name__
