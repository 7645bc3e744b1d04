"""The scoring service and the analyst's page: events in over HTTP, scores, alerts and verdicts out.

`create_app(settings)` makes the application, `serve(settings)` runs it. An event is acknowledged only after it and
its score are in the store.
"""

from ustad.service.settings import Settings

#: The modules that other rooms may import; a test refuses imports past them.
DOOR = (
    "app",
    "keys",
    "settings",
)

__all__ = ["Settings"]
