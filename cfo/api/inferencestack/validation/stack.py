"""The validation of a whole stack, and of its updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from cfo.api.inferencestack.names import names_of
from cfo.api.inferencestack.profiles import Profile
from cfo.api.inferencestack.resolution import resolve
from cfo.api.inferencestack.validation.fields import check_fields
from cfo.api.inferencestack.validation.limits import limit_errors
from cfo.api.inferencestack.validation.naming import label_errors, name_errors
from cfo.api.inferencestack.validation.settings import settings_errors
from cfo.api.inferencestack.validation.warnings import label_warnings, settings_warnings
from cfo.runtime import FieldError, Object
from cfo.runtime.objects.field import MAX_ERRORS, Path, forbidden

__all__ = ["MAX_WARNINGS", "Validation", "validate", "validate_update"]

MAX_WARNINGS: Final = 20
"""The maximum number of warnings that one request returns."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The errors and warnings of a stack, in the order in which they were found.

    There is at most one error more than :class:`~cfo.runtime.FieldErrors` reports. ``is_readable`` is whether the JSON
    types are correct, so that the stack can be resolved.
    """

    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()
    is_readable: bool = True


def validate(stack: Object, profile: Profile) -> Validation:
    """Validate ``stack`` with the defaults of ``profile``. The work is bounded by :mod:`.limits`."""
    errors, warnings = list(label_errors(stack)), list(label_warnings(stack))
    if exceeded := limit_errors(stack):
        return Validation((*errors, *exceeded), tuple(warnings), is_readable=False)
    spec: Mapping[str, Any] = stack.get("spec") or {}
    report = check_fields(spec)
    errors += report.errors
    warnings += report.warnings
    if report.is_typed:
        resolved = resolve(stack, profile)
        errors += islice(chain(name_errors(resolved), settings_errors(resolved)), MAX_ERRORS + 1)
        warnings += islice(settings_warnings(resolved), MAX_WARNINGS + 1)
    return Validation(tuple(errors[: MAX_ERRORS + 1]), _limited(warnings), report.is_typed)


def validate_update(old: Object, new: Object, profile: Profile) -> Validation:
    """Validate the update of ``old`` to ``new``: an error that ``old`` already has becomes a warning.

    In addition, this rejects what cannot be changed: the selector of a Deployment that keeps its name.
    """
    after = validate(new, profile)
    if not after.errors:
        before = validate(old, profile)
        changed = tuple(_changed_selector(old, new)) if before.is_readable else ()
        return Validation(changed, after.warnings)
    known = set(map(str, validate(old, profile).errors))
    kept = [str(error) for error in after.errors if str(error) in known]
    fresh = tuple(error for error in after.errors if str(error) not in known)
    return Validation(fresh, _limited([*kept, *after.warnings]), after.is_readable)


def _changed_selector(old: Object, new: Object) -> Iterator[FieldError]:
    before, after = names_of(old), names_of(new)
    if before.fullname == after.fullname and before.name_label != after.name_label:
        yield forbidden(
            Path("spec", "nameOverride"),
            "changes the selectors of the Deployments, which are immutable; change fullnameOverride as well",
        )


def _limited(warnings: list[str]) -> tuple[str, ...]:
    more = len(warnings) - MAX_WARNINGS
    return (*warnings[:MAX_WARNINGS], *(["further warnings are not shown"] if more > 0 else []))
