"""The parts of which the shapes of the API's responses are made, as JSON Schema."""

from __future__ import annotations

from typing import Any, Final

from jobqueue.core import states

Shape = dict[str, Any]

TEXT: Final[Shape] = {"type": "string"}
UUID: Final[Shape] = {"type": "string", "format": "uuid", "description": "The public id of a job."}
COUNT: Final[Shape] = {"type": "integer", "minimum": 0}
FLAG: Final[Shape] = {"type": "boolean"}
MOMENT: Final[Shape] = {"type": "string", "format": "date-time"}
SECONDS: Final[Shape] = {"type": "number", "minimum": 0}
OBJECT: Final[Shape] = {"type": "object"}
STATUS: Final[Shape] = {"enum": states.Status.values}
ANYTHING: Final[Shape] = {}
PHASE_STATES: Final = ["PENDING", "RUNNING", "SUCCESS", "ERROR", "CANCELED"]


def ref(name: str) -> Shape:
    """Return a reference to a shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(shape: Shape) -> Shape:
    """Return the shape of a value that may be null."""
    return {"anyOf": [shape, {"type": "null"}]}


def array(shape: Shape) -> Shape:
    """Return the shape of a list."""
    return {"type": "array", "items": shape}


def described(shape: Shape, text: str) -> Shape:
    """Return a shape with a description."""
    return {**shape, "description": text}


def record(**fields: Shape) -> Shape:
    """Return the shape of an object that has exactly these fields."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
