"""Rules that a flag declares: bounds of numbers, and combinations with other flags that are rejected.

A flag is *given* if its value differs from the field's default and is not an empty text, which resets a value set by
a script. A rule applies only to a given flag, so defaults never contradict each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from claw_base.errors import ConfigError


def option(name: str) -> str:
    """Returns the flag of a field: `save_interval` -> `--save-interval`, `from_` -> `--from`."""
    return "--" + name.rstrip("_").replace("_", "-")


@dataclass(frozen=True)
class Bounds:
    """The numbers that a flag accepts: `above` and `below` are exclusive; `also` is one more number, such as -1."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    also: float | None = None
    unit: str = ""

    def hold(self, value: float) -> bool:
        """Returns whether `value` is accepted; NaN is not."""
        inside = (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )
        return value == value and (inside or value == self.also)

    @property
    def range(self) -> str:
        """Returns the range in words, without the unit; "" if there are no bounds."""
        if self.least is not None and self.most is not None:
            text = f"from {self.least} to {self.most}"
        else:
            ends = [(self.least, "{} or more"), (self.above, "above {}")]
            ends += [(self.most, "at most {}"), (self.below, "below {}")]
            text = " and ".join(words.format(end) for end, words in ends if end is not None)
        return text + ("" if self.also is None else f", or {self.also}")

    def __str__(self) -> str:
        comma = "" if self.range[:1].isalpha() else ","
        return f"a number of {self.unit}{comma} {self.range}" if self.unit else self.range


@dataclass(frozen=True)
class Rule:
    """Rejects a flag if all conditions hold.

    Attributes:
        text: the error; {flag} and {value} are replaced by the flag's, {any_other_name} by that flag's value.
        present: other flags that must be given.
        absent: other flags that must not be given.
        equal: names (the flag's own too), with the values of which each must have one.
        other: names, with the values of which each must have none.
    """

    text: str
    present: Sequence[str] = ()
    absent: Sequence[str] = ()
    equal: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    other: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    @property
    def names(self) -> Iterator[str]:
        """Yields every flag that the conditions use."""
        yield from (*self.present, *self.absent)
        yield from (name for name, _ in (*self.equal, *self.other))

    def broken(self, args: object, defaults: dict[str, Any]) -> bool:
        """Returns whether all conditions hold for these arguments."""
        arguments = vars(args)
        return (
            all(is_given(arguments[name], defaults[name]) for name in self.present)
            and not any(is_given(arguments[name], defaults[name]) for name in self.absent)
            and all(arguments[name] in values for name, values in self.equal)
            and not any(arguments[name] in values for name, values in self.other)
        )


def needs(*names: str, text: str = "", why: str = "", **equal: object) -> Rule:
    """Rejects a flag unless one of `names` is given, or a flag of `equal` has that value (or one of a tuple)."""
    conditions = _pairs(equal)
    options = [option(name) for name in names]
    options += [f"{option(name)} {' or '.join(map(str, values))}" for name, values in conditions]
    reason = f"it needs {' or '.join(options)}{why and ', '}{why}"
    return Rule(text or "{flag} would change nothing: " + reason, absent=names, other=conditions)


def excludes(*names: str, text: str = "", without: Sequence[str] = (), **equal: object) -> Rule:
    """Rejects a flag if all of `names` are given, none of `without` is, and all of `equal` have that value (or one of
    a tuple)."""
    conditions = _pairs(equal)
    companions = [option(name) for name in names]
    companions += [f"{option(name)} {{{name}}}" for name, _ in conditions]
    reason = f"{{flag}} has no effect with {' and '.join(companions)}; drop it"
    return Rule(text or reason, present=names, absent=without, equal=conditions)


def _pairs(equal: dict[str, object]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return tuple((name, value if isinstance(value, tuple) else (value,)) for name, value in equal.items())


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Returns a field's default."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def is_given(value: object, default: object) -> bool:
    """Returns whether a value was set by the user."""
    return value not in (default, "")


def check_flags(args: object) -> None:
    """Checks every flag's bounds, then its rules, in order of declaration.

    Raises:
        ConfigError: names the flag, the reason and the remedy.
    """
    fields = flag_fields(args)
    check_fields(args, fields, fields)


def flag_fields(group: Any) -> list[dataclasses.Field[Any]]:
    """Returns the fields of a group of flags (class or instance) that are flags."""
    return [field for field in dataclasses.fields(group) if "help" in field.metadata]


def check_fields(
    args: object, fields: Sequence[dataclasses.Field[Any]], known: Sequence[dataclasses.Field[Any]]
) -> None:
    """Like `check_flags`, for `fields` only.

    Args:
        args: values of all `known` fields.
        known: the fields that rules may use.
    """
    for field in fields:
        value, bounds = vars(args)[field.name], field.metadata["bounds"]
        if value is not None and not bounds.hold(value):
            raise ConfigError(
                f"{option(field.name)} must be {str(bounds).strip() or 'a number'}, got {value}"
            )
    defaults = {field.name: default_of(field) for field in known}
    for field in fields:
        value = vars(args)[field.name]
        for rule in field.metadata["rules"]:
            if is_given(value, defaults[field.name]) and rule.broken(args, defaults):
                own = {"flag": option(field.name), "value": value}
                raise ConfigError(rule.text.format_map(vars(args) | own))
