"""The web pages: HTML made on the server by Jinja templates.

routes.py    all routes: method, path, required access, handler
files.py     static files
page.py      a request for a page, access checks, error pages, flash messages
forms.py     form fields, multipart uploads, problems of fields
view.py      Jinja filters and globals, headers of a page
actors.py    display names of actors
chart.py     the bar chart of the overview
addresses.py addresses of what a page shows, for other clients
columns.py, conditions.py, reading.py, past.py, facets.py, groups.py, search.py   what the pages of rows are made of
change_sets.py, row_names.py, import_errors.py, mapper_words.py   what more than one page reads
The other modules are a page each, or a list and what it leads to; most templates have the name of their module.

Pages call the same functions as the API.  They work without JavaScript; static/pages.js only adds comfort.
"""

from app.web.page import Site
from app.web.routes import routes

__all__ = ["Site", "routes"]
