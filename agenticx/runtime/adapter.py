"""tmp"""

from typing import Any


def adapt(model: Any) -> Any:
    return model
