"""The web pages: what people see of the service, made on the server, in HTML.

Pages ask the same functions as the API and add nothing of their own but their shape.  Forms work without JavaScript; what little
there is of it adds comfort.
"""

from app.web.routes import routes
from app.web.site import Site

__all__ = ["Site", "routes"]
