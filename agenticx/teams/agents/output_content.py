"""The check of the object that an agent answers with, and of its text."""

from __future__ import annotations

from string import Formatter

from pydantic import BaseModel

__all__ = ["check_output_content"]


def check_output_content(content_type: object, text_format: str | None) -> None:
    """Raise TypeError for a type that is no pydantic model, ValueError for a format of other fields than it has."""
    if content_type is None:
        return
    if not (isinstance(content_type, type) and issubclass(content_type, BaseModel)):
        raise TypeError(f"output_content_type must be a subclass of pydantic.BaseModel, not {content_type!r}")
    if text_format is None:
        return
    names = [name for _, name, _, _ in Formatter().parse(text_format) if name is not None]
    known = {*content_type.model_fields, *content_type.model_computed_fields}
    if unknown := [name for name in names if name.split(".")[0].split("[")[0] not in known]:
        raise ValueError(f"output_content_type_format has the fields {unknown}; right would be {sorted(known)}")
