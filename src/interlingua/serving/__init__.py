"""The HTTP API and the web page over an index: `create_app(index, settings)`; `interlingua serve` runs it."""

from __future__ import annotations

from interlingua.errors import NotFound
from interlingua.lazy import lazy_names

try:
    import fastapi  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    raise NotFound(f"serving needs {error.name}: pip install 'interlingua[serve]'.") from error

__getattr__, __dir__ = lazy_names(__name__, {"app": "create_app", "service": "ServeSettings"})
